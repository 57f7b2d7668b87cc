"""Narrower values on the wire: cast where they are sent, and back where they arrive.

Variables, slots and all that is computed stay float32. In order:

1. `narrow` casts on the sending side. float16 ends at 65504: what is larger there would arrive as
   infinity, so the largest value is looked at before, and the run fails with a sentence that names
   the tensor and counts the values that are too large. bfloat16 has the range of float32.
2. The tensor travels.
3. `widen` casts back on the receiving side.

Only float32 is cast: another type travels as it is.
"""

from __future__ import annotations

from typing import Sequence

import tensorflow.compat.v1 as tf

from tf1ps.transfer.choices import WIRE_DTYPES

_IN_USE = "tf1ps_wire_dtype"  # collection: what a graph's flag says, at most one
OVERFLOW = "float16 overflow: "  # an error of this begins so
# The least value that float16 rounds to infinity: half a step of 32 above 65504, the largest one.
_LIMIT = 65520.0


def check_wire_dtype(wire_dtype: str) -> None:
  """Refuses a type that nothing can be sent as; raises ValueError."""
  if wire_dtype not in WIRE_DTYPES:
    raise ValueError("wire_dtype must be one of %s, got %r" % (", ".join(WIRE_DTYPES), wire_dtype))


def use_wire_dtype(wire_dtype: str) -> None:
  """Says what the lookups of a model that is built after it in the default graph send values as."""
  check_wire_dtype(wire_dtype)
  tf.get_default_graph().get_collection_ref(_IN_USE)[:] = [wire_dtype]


def in_use() -> str:
  """What `use` has said of the default graph; else "float32"."""
  return (tf.get_collection(_IN_USE) or ["float32"])[0]


def is_narrowed(dtype: tf.DType, wire_dtype: str) -> bool:
  """Whether values of a type are sent as another one."""
  return dtype == tf.float32 and wire_dtype != "float32"


def narrow(tensor: tf.Tensor, wire_dtype: str, names: Sequence[str],
           sizes: Sequence[int] = ()) -> tf.Tensor:
  """Casts a tensor for the way; to be called in the sender's device scope.

  Args:
    tensor: what is sent.
    wire_dtype: one of WIRE_DTYPES.
    names: of what is in the tensor, one behind the other.
    sizes: how many elements each of them has; () for a single one.

  Returns:
    The tensor to send; the same where it is not narrowed.

  Raises:
    tf.errors.InvalidArgumentError: when run, a value is too large for float16.
  """
  if not is_narrowed(tensor.dtype, wire_dtype):
    return tensor
  if wire_dtype != "float16":
    return tf.cast(tensor, wire_dtype)
  with tf.control_dependencies([_check_range(tensor, names, sizes)]):
    return tf.cast(tensor, tf.float16)


def widen(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Casts an arrived tensor back; to be called in the receiver's device scope."""
  return tensor if tensor.dtype == dtype else tf.cast(tensor, dtype)


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
      tf.gather(tf.constant(list(names)), index), " and what travels with it" * (len(names) > 1),
      " are above 65504, the largest float16; the first is ", tf.as_string(flat[first]),
      ". Send bfloat16 (--wire_dtype or wire_dtype=), whose range is that of float32"])])
    with tf.control_dependencies([check]):
      return tf.constant(False)

  is_over = tf.reduce_any(tf.reduce_max(tf.abs(tensor)) >= _LIMIT)
  return tf.cond(is_over, fail, lambda: tf.constant(True)).op
