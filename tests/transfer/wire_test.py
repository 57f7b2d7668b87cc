from __future__ import annotations

import functools

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
  with pytest.raises(ValueError, match="one of float32, bfloat16, float16, int8, got 'int4'"):
    wire.check_wire_dtype("int4")


def test_each_wire_type_but_float32_has_a_format():
  assert ("float32", *wire._FORMATS) == WIRE_DTYPES


@pytest.fixture
def scaled(monkeypatch):
  """A wire type "scaled" that sends a scale beside the values, in both directions."""
  def narrow(tensor, names, sizes):
    assert len(names) == max(1, len(sizes))
    scale = tf.reduce_max(tf.abs(tensor)) / 127.0
    return [tf.cast(tf.round(tensor / scale), tf.int8), scale]

  def widen(arrived, shape, sizes):
    del shape, sizes
    values, scale = arrived
    return tf.cast(values, tf.float32) * scale

  monkeypatch.setitem(wire._FORMATS, "scaled", wire._Format(
    narrow, widen, values="scaled", lookup="bfloat16"))
  monkeypatch.setattr(wire, "WIRE_DTYPES", WIRE_DTYPES + ("scaled",))


@pytest.mark.parametrize("prefetches", [False, True])
def test_a_format_may_send_a_scale_beside_the_values(cluster, scaled, prefetches):
  ahead = prefetch.Prefetch()
  with cluster.graph():
    with tf.device(graphs.setter()):
      variables = [graphs.variable("w", [4, 2], True), graphs.variable("b", [3], True)]
      with tf.device(WORKER):
        doubled = [2.0 * variable for variable in variables]
      pairs = buckets.pack_gradients(list(zip(doubled, variables)), wire_dtype="scaled")
      arrivals = fetch.fetch_variables(wire_dtype="scaled", hold=ahead.hold if prefetches else None)
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
    wire.use_wire_dtype("scaled")
    assert wire.lookup_wire_dtype(None) == "bfloat16"
  assert wire.lookup_wire_dtype(None) == "float32"
  assert wire.lookup_wire_dtype("float16") == "float16"
  with pytest.raises(ValueError, match="lookups cannot travel as scaled. Give bfloat16"):
    wire.lookup_wire_dtype("scaled")


def by_int8(values, sizes=(), shape=None):
  """Returns values after a round trip, and how many tensors it took; shape: what is known of it."""
  values = np.float32(values)
  shape = tf.TensorShape(values.shape if shape is None else shape)
  session, tensor, back, count = _int8_graph(
    None if shape.rank is None else tuple(shape.as_list()), tuple(sizes))
  return session.run(back, {tensor: values}), count


@functools.lru_cache(maxsize=None)
def _int8_graph(shape, sizes):
  """A session, where values go in and come out, and how many tensors are sent; made once."""
  with tf.Graph().as_default():
    tensor = tf.placeholder(tf.float32, shape)
    sent = wire.narrow(tensor, "int8", ["w"] * max(1, len(sizes)), sizes)
    assert sent[0].dtype == tf.int8
    back = wire.widen(sent, tf.float32, "int8", tensor.shape, sizes)
    assert str(back.shape) == str(tensor.shape)
    return tf.Session(), tensor, back, len(sent)


@pytest.mark.parametrize("values_shape", [[], [1], [7], [3, 2], [2, 3, 4], [1000, 3], [0, 2]])
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e30])
def test_int8_is_off_by_half_a_step_at_most(values_shape, size):
  values = np.float32(np.random.RandomState(0).randn(*values_shape) * size)
  found, count = by_int8(values)
  assert count == 1 and found.shape == values.shape
  largest = np.max(np.abs(values), initial=0.0)
  assert np.all(np.abs(found - values) <= largest / 254 * (1 + 1e-5))
  assert np.max(np.abs(found), initial=0.0) == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("shape, count", [
  ([None], 1), ([None, 1], 1), ([None, 3], 1), ([None, 2, 3], 1), ([None, None], 2), (None, 2),
  ([None, 0], 2)])
def test_int8_of_a_number_of_rows_that_is_not_known(rows, shape, count):
  whole = [rows, 4] if shape is None else [rows] + [each or 0 for each in shape[1:]]
  values = np.random.RandomState(0).randn(*whole)
  found, sent = by_int8(values, shape=tf.TensorShape(shape))
  assert sent == count and found.shape == values.shape
  assert np.all(np.abs(found - values) <= np.max(np.abs(values), initial=0.0) / 250)


def test_each_tensor_of_a_buffer_has_a_scale_of_its_own():
  """Together with the second, the first would be 0."""
  for shape in [7], [7, 1]:
    values = np.reshape([1e-6, -2e-6, 1e6, 5e5, -1e6, 0.0, 0.0], shape)
    found, count = by_int8(values, [2, 3, 0, 2])
    assert count == 1
    np.testing.assert_allclose(found, values, rtol=1 / 100)


def test_zeros_and_what_is_too_small_for_a_scale_are_zeros_by_int8():
  for values in np.zeros([3, 2]), np.full([3], 1e-37), np.full([5], 2e-43):
    np.testing.assert_array_equal(by_int8(values)[0], np.zeros_like(values))


def test_the_largest_float_stays_finite_by_int8():
  largest = np.finfo(np.float32).max
  values = np.float32([largest, -largest, 1.0])
  found, _ = by_int8(values)
  np.testing.assert_allclose(found, [largest, -largest, 0.0], rtol=1e-6)
  # TensorFlow's graph optimizer would compute in another order.
  session, tensor, back, _ = _int8_graph((3,), ())
  config = tf.ConfigProto()
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  with tf.Session(graph=session.graph, config=config) as plain:
    found = plain.run(back, {tensor: values})
  np.testing.assert_allclose(found, [largest, -largest, 0.0], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_one_bad_value_makes_its_tensor_nan_by_int8(bad):
  """But not the others in the buffer."""
  found, _ = by_int8([1.0, 2.0, 3.0, bad, 0.0, 5.0], [2, 3, 1])
  np.testing.assert_allclose(found, [1.0, 2.0, np.nan, np.nan, np.nan, 5.0], rtol=0.01)
  values = np.ones([41, 40])  # one tensor for each place, and one without
  values[np.arange(40), np.arange(40)] = bad
  found = by_int8(values.ravel(), [40] * 41)[0].reshape(41, 40)
  assert np.all(np.isnan(found[:40])) and np.all(found[40] == 1)


def test_int8_is_for_gradients_alone():
  assert wire.value_wire_dtype("int8") == "float32"
  assert [wire.value_wire_dtype(one) for one in WIRE_DTYPES[:3]] == list(WIRE_DTYPES[:3])
  with tf.Graph().as_default():
    wire.use_wire_dtype("int8")
    assert wire.lookup_wire_dtype(None) == "float32"
  with pytest.raises(ValueError, match="lookups cannot travel as int8. Give float32"):
    wire.lookup_wire_dtype("int8")
