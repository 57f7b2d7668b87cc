from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.transfer import WIRE_DTYPES, buckets, fetch, prefetch, wire


def there_and_back(values, wire_dtype, names=("w",), sizes=(), dtype=tf.float32):
  with tf.Graph().as_default(), tf.Session() as session:
    sent = wire.narrow(tf.constant(values, dtype), wire_dtype, names, sizes)
    assert sent[0].dtype == (wire_dtype if dtype == tf.float32 else dtype)
    back = wire.widen(sent, dtype, wire_dtype)
    assert back.dtype == dtype
    return session.run(back)


@pytest.mark.parametrize("wire_dtype, expected", [
  ("float32", [1.001, -2.0, 70000.0]), ("bfloat16", [1.0, -2.0, 70144.0])])
def test_values_are_rounded_on_the_way(wire_dtype, expected):
  np.testing.assert_array_equal(
    there_and_back([1.001, -2.0, 70000.0], wire_dtype), np.float32(expected))


def test_float16_up_to_its_largest():
  np.testing.assert_array_equal(
    there_and_back([1.001, 65519.0, -65519.0], "float16"), np.float32([1.0009766, 65504, -65504]))


@pytest.mark.parametrize("values, names, sizes, text", [
  ([1.0, -65520.0, 1e9], ["w"], [],
   "float16 overflow: 2 values of w are above 65504, the largest float16; the first is 65520"),
  ([0.0, 1.0, 2.0, 1e6, 0.0], ["a", "the gradient of b", "c"], [2, 2, 1],
   "overflow: 1 values of the gradient of b and tensors sent with it are above"),
  ([0.0, 1.0, 1e6, 1e6, 0.0], ["a", "b", "c"], [2, 2, 1], "overflow: 2 values of b "),
  ([0.0, 1.0, 1.0, 1.0, np.inf], ["a", "b", "c"], [2, 2, 1], "overflow: 1 values of c "),
])
def test_what_is_too_large_for_float16_is_counted_and_named(values, names, sizes, text):
  with pytest.raises(tf.errors.InvalidArgumentError) as error:
    there_and_back(values, "float16", names, sizes)
  assert text in error.value.message
  assert "Send bfloat16 (--wire_dtype" in error.value.message


@pytest.mark.parametrize("dtype", [tf.float64, tf.int32])
def test_only_float32_is_narrowed(dtype):
  assert not wire.is_narrowed(dtype, "float16")
  np.testing.assert_array_equal(there_and_back([1, 70000], "float16", dtype=dtype), [1, 70000])


def test_nan_passes():
  assert np.isnan(there_and_back([1.0, np.nan], "float16")[1])


def test_another_type_is_refused():
  with pytest.raises(ValueError, match="one of float32, bfloat16, float16, got 'int8'"):
    wire.check_wire_dtype("int8")


def test_each_wire_type_but_float32_has_a_format():
  assert ("float32", *wire._FORMATS) == WIRE_DTYPES


@pytest.fixture
def scaled(monkeypatch):
  """A wire type "int8" that sends a scale beside the values."""
  def narrow(tensor, names, sizes):
    assert len(names) == max(1, len(sizes))
    scale = tf.reduce_max(tf.abs(tensor)) / 127.0
    return [tf.cast(tf.round(tensor / scale), tf.int8), scale]

  def widen(arrived):
    values, scale = arrived
    return tf.cast(values, tf.float32) * scale

  monkeypatch.setitem(wire._FORMATS, "int8", wire._Format(narrow, widen, lookup="bfloat16"))
  monkeypatch.setattr(wire, "WIRE_DTYPES", WIRE_DTYPES + ("int8",))


@pytest.mark.parametrize("prefetches", [False, True])
def test_a_format_may_send_a_scale_beside_the_values(cluster, scaled, prefetches):
  ahead = prefetch.Prefetch()
  with cluster.graph():
    with tf.device(graphs.setter()):
      variables = [graphs.variable("w", [4, 2], True), graphs.variable("b", [3], True)]
      with tf.device(WORKER):
        doubled = [2.0 * variable for variable in variables]
      pairs = buckets.pack_gradients(list(zip(doubled, variables)), wire_dtype="int8")
      arrivals = fetch.fetch_variables(wire_dtype="int8", hold=ahead.hold if prefetches else None)
      assert [[tensor.dtype for tensor in arrival.tensors] for arrival in arrivals] == [
        [tf.int8, tf.float32]]
      assert len(graphs.crossings(PS[0], WORKER)) == len(graphs.crossings(WORKER, PS[0])) == 2
      init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      if prefetches:
        ahead.start(session)
      found, values = session.run([[gradient for gradient, _ in pairs], variables])
  for gradient, value in zip(found, values):
    np.testing.assert_allclose(gradient, 2 * value, atol=2 * 2 * 0.07 / 254)


def test_lookups_use_a_format_that_gradients_pass_through(scaled):
  with tf.Graph().as_default():
    wire.use_wire_dtype("int8")
    assert wire.lookup_wire_dtype(None) == "bfloat16"
  assert wire.lookup_wire_dtype(None) == "float32"
  assert wire.lookup_wire_dtype("float16") == "float16"
  with pytest.raises(ValueError, match="lookups cannot travel as int8. Give bfloat16"):
    wire.lookup_wire_dtype("int8")
