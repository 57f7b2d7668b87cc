"""Sends float32 values as a narrower type: `narrow` on the sender, `widen` on the receiver.

Variables, slots and all computations stay float32. Tensors of other types travel unchanged.

The table `_FORMATS` has one row for each type in choices.py but float32. To add a wire type, add it
there and add a row here. A row says how a float32 tensor becomes a list of tensors, and how the
list becomes float32 again. The list has the narrow values, and any other tensor that `widen` needs,
such as a scale: every caller sends each tensor of the list, and each is a message.

float16 ends at 65504, and larger values would arrive as infinity. So the largest value is checked
before the cast, and the run fails with a message that names the tensor and counts the values that
are too large. bfloat16 has the range of float32.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.transfer.choices import WIRE_DTYPES

_IN_USE = "tf1ps_wire_dtype"  # a collection: the wire dtype of the graph's lookups, at most one
OVERFLOW = "float16 overflow: "  # the beginning of the message of a float16 overflow
# The least value that float16 rounds to infinity: half a step of 32 above 65504, the largest one.
_LIMIT = 65520.0


class _Format(NamedTuple):
  """How float32 values travel as a wire type."""

  # (float32 tensor, names, sizes) -> the tensors to send; see `narrow`.
  narrow: Callable[[tf.Tensor, Sequence[str], Sequence[int]], List[tf.Tensor]]
  # The arrived tensors -> the float32 tensor.
  widen: Callable[[List[tf.Tensor]], tf.Tensor]
  # The wire type of embedding lookups. Their gradients pass through the operations of `narrow` and
  # `widen` (embedding.py), so each of these must be one cast between floating types.
  lookup: str


def check_wire_dtype(wire_dtype: str) -> None:
  """Raises ValueError if a wire type is none of `WIRE_DTYPES`."""
  if wire_dtype not in WIRE_DTYPES:
    raise ValueError("wire_dtype must be one of %s, got %r" % (", ".join(WIRE_DTYPES), wire_dtype))


def use_wire_dtype(wire_dtype: str) -> None:
  """Sets the wire type of lookups that are built later in the default graph."""
  check_wire_dtype(wire_dtype)
  tf.get_default_graph().get_collection_ref(_IN_USE)[:] = [wire_dtype]


def lookup_wire_dtype(wire_dtype: Optional[str]) -> str:
  """Returns the wire type of a lookup.

  Args:
    wire_dtype: the type that the caller of the lookup gives; None: the type that `use_wire_dtype`
      has set for the default graph, or "float32".

  Raises:
    ValueError: if lookups cannot use the type.
  """
  if wire_dtype is None:
    wire_dtype = (tf.get_collection(_IN_USE) or ["float32"])[0]
    return _FORMATS[wire_dtype].lookup if wire_dtype in _FORMATS else wire_dtype
  check_wire_dtype(wire_dtype)
  if wire_dtype in _FORMATS and _FORMATS[wire_dtype].lookup != wire_dtype:
    raise ValueError("lookups cannot travel as %s. Give %s" % (
      wire_dtype, _FORMATS[wire_dtype].lookup))
  return wire_dtype


def is_narrowed(dtype: tf.DType, wire_dtype: str) -> bool:
  """Returns whether values of a type travel as another type."""
  return dtype == tf.float32 and wire_dtype in _FORMATS


def narrow(tensor: tf.Tensor, wire_dtype: str, names: Sequence[str],
           sizes: Sequence[int] = ()) -> List[tf.Tensor]:
  """Narrows a tensor before it travels. Call it in the sender's device scope.

  Args:
    tensor: the values to send.
    wire_dtype: one of `WIRE_DTYPES`.
    names: names for messages, one for each of the tensors that are concatenated in `tensor`.
    sizes: the number of elements of each of them; () if there is one name.

  Returns:
    The tensors to send: `[tensor]` itself if it is not narrowed.

  Raises:
    tf.errors.InvalidArgumentError: in a run, if a value is too large for float16.
  """
  if not is_narrowed(tensor.dtype, wire_dtype):
    return [tensor]
  return _FORMATS[wire_dtype].narrow(tensor, names, sizes)


def widen(arrived: Sequence[tf.Tensor], dtype: tf.DType, wire_dtype: str) -> tf.Tensor:
  """Reverses `narrow` for tensors that have arrived. Call it in the receiver's device scope.

  Args:
    arrived: the tensors that `narrow` returned, on the receiver.
    dtype: the type of the tensor that was narrowed.
    wire_dtype: the wire type that it was narrowed to.
  """
  if not is_narrowed(dtype, wire_dtype):
    return arrived[0]
  return _FORMATS[wire_dtype].widen(list(arrived))


def _to_bfloat16(tensor, names, sizes):
  del names, sizes  # no value is too large
  return [tf.cast(tensor, tf.bfloat16)]


def _to_float16(tensor, names, sizes):
  with tf.control_dependencies([_check_range(tensor, names, sizes)]):
    return [tf.cast(tensor, tf.float16)]


def _to_float32(arrived):
  return tf.cast(arrived[0], tf.float32)


_FORMATS: Dict[str, _Format] = {
  "bfloat16": _Format(_to_bfloat16, _to_float32, lookup="bfloat16"),
  "float16": _Format(_to_float16, _to_float32, lookup="float16"),
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
