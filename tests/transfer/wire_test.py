from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.transfer import wire


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
