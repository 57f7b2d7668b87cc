"""Sends float32 values as a narrower type: `narrow` on the sender, `widen` on the receiver.

Variables, slots and all computations stay float32. Tensors of other types travel unchanged.

The table `_FORMATS` has a row for each type in wire_options.py except float32. To add a wire type,
add the type to wire_options.py and a row to `_FORMATS`. A row says how a float32 tensor becomes a
list of tensors, and how the list becomes float32 again. The list has the narrow values, and any
other tensor that `widen` needs, such as a scale. Every caller sends each tensor of the list as a
message.

The largest float16 is 65504, and larger values would arrive as infinity. So the largest value is
checked before the cast, and the run fails with a message that names the tensor and counts the
values that are too large. bfloat16 has the range of float32.

int8 is for gradients only: for int8, `value_wire_dtype` and the default of `lookup_wire_dtype` are
float32. Each gradient in a bucket has its own scale, so that a small gradient beside a large
gradient does not become 0. The scales travel as bytes after the values, in the same message.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.transfer.wire_options import WIRE_DTYPES

_IN_USE = "tf1ps_wire_dtype"  # a collection: the wire dtype of the graph's lookups, if any
OVERFLOW = "float16 overflow: "  # the beginning of the message of a float16 overflow
# The least value that float16 rounds to infinity: half a step of 32 above 65504, the largest.
_LIMIT = 65520.0
_STEPS = 127.0  # the int8 steps on each side of 0; -128 is not used
_LEAST_SCALE = np.finfo(np.float32).tiny  # TensorFlow's threads flush smaller values to 0
_MOST_SCALE = np.nextafter(  # times 127 steps, it is still finite
  np.float32(np.finfo(np.float32).max / _STEPS), np.float32(0))
_SCALE_BYTES = 4  # a float32


class _Format(NamedTuple):
  """How float32 values travel as a wire type."""

  # (float32 tensor, names, sizes) -> the tensors to send; see `narrow`.
  narrow: Callable[[tf.Tensor, Sequence[str], Sequence[int]], List[tf.Tensor]]
  # (the arrived tensors, shape, sizes) -> the float32 tensor; see `widen`.
  widen: Callable[[List[tf.Tensor], Optional[tf.TensorShape], Sequence[int]], tf.Tensor]
  # The wire type of variables' values. Its `widen` gets no shape and no sizes.
  values: str
  # The wire type of embedding lookups. Their gradients pass through the operations of `narrow` and
  # `widen` (embedding.py). So each of these must be a single cast between floating types; otherwise
  # `lookup` must be "float32".
  lookup: str


def check_wire_dtype(wire_dtype: str) -> None:
  """Raises ValueError if a wire type is not in `WIRE_DTYPES`."""
  if wire_dtype not in WIRE_DTYPES:
    raise ValueError("wire_dtype must be one of %s, got %r" % (", ".join(WIRE_DTYPES), wire_dtype))


def use_wire_dtype(wire_dtype: str) -> None:
  """Sets the wire type of lookups that are built later in the default graph."""
  check_wire_dtype(wire_dtype)
  tf.get_default_graph().get_collection_ref(_IN_USE)[:] = [wire_dtype]


def lookup_wire_dtype(wire_dtype: Optional[str]) -> str:
  """Returns the wire type of a lookup; raises ValueError if lookups cannot use it.

  `wire_dtype` is the type that the caller gives; None: the type that `use_wire_dtype` has set for
  the default graph, or "float32".
  """
  if wire_dtype is None:
    wire_dtype = (tf.get_collection(_IN_USE) or ["float32"])[0]
    return _FORMATS[wire_dtype].lookup if wire_dtype in _FORMATS else wire_dtype
  check_wire_dtype(wire_dtype)
  if wire_dtype in _FORMATS and _FORMATS[wire_dtype].lookup != wire_dtype:
    raise ValueError("lookups cannot travel as %s. Give %s" % (
      wire_dtype, _FORMATS[wire_dtype].lookup))
  return wire_dtype


def value_wire_dtype(wire_dtype: str) -> str:
  """Returns the type that values of variables travel as, if gradients travel as `wire_dtype`."""
  return _FORMATS[wire_dtype].values if wire_dtype in _FORMATS else wire_dtype


def is_narrowed(dtype: tf.DType, wire_dtype: str) -> bool:
  """Returns whether values of a type travel as another type."""
  return dtype == tf.float32 and wire_dtype in _FORMATS


def narrow(tensor: tf.Tensor, wire_dtype: str, names: Sequence[str],
           sizes: Sequence[int] = ()) -> List[tf.Tensor]:
  """Narrows a tensor before it travels. Call it in the sender's device scope.

  Args:
    tensor: the values to send.
    wire_dtype: one of `WIRE_DTYPES`.
    names: for error messages, the name of each of the tensors that are concatenated in `tensor`.
    sizes: the number of elements of each of these tensors; () for a single name.

  Returns:
    The tensors to send: `[tensor]` if the tensor is not narrowed.

  Raises:
    tf.errors.InvalidArgumentError: in a run, if a value is too large for float16.
  """
  if not is_narrowed(tensor.dtype, wire_dtype):
    return [tensor]
  return _FORMATS[wire_dtype].narrow(tensor, names, sizes)


def widen(arrived: Sequence[tf.Tensor], dtype: tf.DType, wire_dtype: str,
          shape: Optional[tf.TensorShape] = None, sizes: Sequence[int] = ()) -> tf.Tensor:
  """Reverses `narrow` for tensors that have arrived. Call it in the receiver's device scope.

  You may call it in a branch of `tf.cond`. In a branch it creates no constant that waits for the
  condition, because the wait would cost a message (see `Bucket.send`).

  Args:
    arrived: the tensors that `narrow` returned, on the receiver.
    dtype: the type of the tensor that was narrowed.
    wire_dtype: the wire type that the tensor was narrowed to.
    shape: the static shape of the tensor that was narrowed. Gradients need it.
    sizes: as they were given to `narrow`.
  """
  if not is_narrowed(dtype, wire_dtype):
    return arrived[0]
  return _FORMATS[wire_dtype].widen(list(arrived), shape, sizes)


def _to_bfloat16(tensor, names, sizes):
  del names, sizes  # no value is too large
  return [tf.cast(tensor, tf.bfloat16)]


def _to_float16(tensor, names, sizes):
  with tf.control_dependencies([_check_range(tensor, names, sizes)]):
    return [tf.cast(tensor, tf.float16)]


def _to_float32(arrived, shape, sizes):
  del shape, sizes  # a cast keeps the shape
  return tf.cast(arrived[0], tf.float32)


def _to_int8(tensor, names, sizes):
  """Returns a tensor of values and scales; two tensors if the rows have no known shape."""
  del names  # no value is too large
  inner, parts = _inner(tensor.shape), [tensor]
  if tensor.shape.is_fully_defined():
    parts = [tf.reshape(tensor, [-1])]
    if len(sizes) > 1:
      parts = tf.split(parts[0], list(sizes))
  scales = tf.stack([_largest(part) for part in parts]) / _STEPS
  nothing = tf.zeros_like(scales)
  scales = tf.where(scales < _LEAST_SCALE, nothing, scales)  # not NaN
  scales = tf.where(scales > _MOST_SCALE, nothing + _MOST_SCALE, scales)
  # The int8 value of a NaN does not matter, because its NaN scale makes it NaN again.
  divisors = tf.unstack(tf.where(scales > 0.0, scales, nothing + np.inf), len(parts))
  steps = [tf.cast(tf.round(part / divisor), tf.int8) for part, divisor in zip(parts, divisors)]
  if inner is None:
    return [steps[0], scales]
  tail = tf.reshape(tf.bitcast(scales, tf.int8), [-1])
  tail = tf.pad(tail, [[0, _tail_rows(inner, len(parts)) * _product(inner)
                        - _SCALE_BYTES * len(parts)]])
  return [tf.concat(steps + [tf.reshape(tail, [-1] + inner)], 0)]


def _from_int8(arrived, shape, sizes):
  # In a branch of tf.cond, TensorFlow lets each constant wait for the branch's condition, which
  # costs a message. A constant that waits for the arrived tensors needs no such wait.
  with tf.control_dependencies(arrived):
    if len(arrived) > 1:
      steps, scales = arrived
      return tf.cast(steps, tf.float32) * scales[0]
    inner, count = _inner(shape), max(1, len(sizes))
    rows = [-1] if count == 1 else list(sizes)
    *steps, tail = tf.split(arrived[0], rows + [_tail_rows(inner, count)])
    tail = tf.reshape(tail, [-1])[:_SCALE_BYTES * count]
    scales = tf.bitcast(tf.reshape(tail, [count, _SCALE_BYTES]), tf.float32)
    parts = [tf.cast(step, tf.float32) * scale
             for step, scale in zip(steps, tf.unstack(scales, count))]
    whole = parts[0] if count == 1 else tf.concat(parts, 0)
    if shape.is_fully_defined():
      return tf.reshape(whole, shape)
    whole.set_shape(shape)
    return whole


def _largest(tensor) -> tf.Tensor:
  """Returns the largest absolute value, []: NaN if any value is NaN or infinite."""
  # Interpreted as integers, floats of one sign keep their order, and NaN is above all other values.
  # A maximum of floats may ignore NaN. The maximum of no values is the least integer, which is -0.0
  # as a float.
  largest = tf.bitcast(tf.reduce_max(tf.bitcast(tf.abs(tensor), tf.int32)), tf.float32)
  return tf.where(tf.is_inf(largest), tf.constant(np.nan), largest)


def _inner(shape) -> Optional[List[int]]:
  """Returns the shape of a row of an int8 message; None: the scale is a separate message."""
  if shape.is_fully_defined():
    return []  # it travels flat
  inner = shape[1:]
  return inner.as_list() if inner.num_elements() else None


def _tail_rows(inner, count) -> int:
  """Returns how many rows the bytes of `count` scales take."""
  return -(-_SCALE_BYTES * count // _product(inner))


def _product(inner) -> int:
  return int(np.prod(inner, dtype=np.int64))


_FORMATS: Dict[str, _Format] = {
  "bfloat16": _Format(_to_bfloat16, _to_float32, values="bfloat16", lookup="bfloat16"),
  "float16": _Format(_to_float16, _to_float32, values="float16", lookup="float16"),
  "int8": _Format(_to_int8, _from_int8, values="float32", lookup="float32"),
}


def _check_range(tensor, names, sizes) -> tf.Operation:
  sizes = list(sizes) or [-1]

  def fail():
    flat = tf.reshape(tf.abs(tensor), [-1])
    is_over = flat >= _LIMIT
    first = tf.where(is_over)[0][0]
    ends = tf.cumsum(tf.constant(sizes[:-1], tf.int64))
    index = tf.reduce_sum(tf.cast(ends <= first, tf.int32)) if len(sizes) > 1 else 0
    check = tf.raw_ops.Assert(condition=False, data=[tf.strings.join([
      OVERFLOW, tf.as_string(tf.math.count_nonzero(is_over)), " values of ",
      tf.gather(tf.constant(list(names)), index), " and tensors sent with it" * (len(names) > 1),
      " are above 65504, the largest float16; the first is ", tf.as_string(flat[first]),
      ". Send bfloat16 (--wire_dtype or wire_dtype=), which has the range of float32"])])
    with tf.control_dependencies([check]):
      return tf.constant(False)

  is_over = tf.reduce_any(tf.reduce_max(tf.abs(tensor)) >= _LIMIT)
  return tf.cond(is_over, fail, lambda: tf.constant(True)).op
