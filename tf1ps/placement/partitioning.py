"""Divides variables into shards, so that several ps hold one variable.

A partitioner is the function that `tf.get_variable` and `tf.variable_scope` take as `partitioner=`.
It returns the number of shards along each axis for a variable's shape and dtype. The first three
partitioners below are TensorFlow's, with checked arguments and errors that name the missing axis.
`bytes_partitioner` bounds the size of a shard and spreads the shards over the ps.

`partition_large` opens a scope that partitions large variables:

1. A trainable variable of more bytes than the bound gets `bytes_partitioner`, unless the program
   gave a partitioner.
2. All other variables stay unchanged. (A partitioner of a variable scope would turn each of them
   into a partitioned variable of one shard, which has another name and cannot be assigned to.)
3. At its end, the scope refuses lookups that read wrong rows of such a variable. TensorFlow's
   lookups have the default partition_strategy="mod", so that id i is row i // n of shard i % n, but
   the shards of a partitioner hold consecutive rows.

The device setter places each shard by itself. A checkpoint holds a partitioned variable as one
tensor, so you can restore it into any number of shards.
"""

from __future__ import annotations

import contextlib
import numbers
from typing import Callable, Iterator, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.graph import source_op, uses

_STRING_BYTES = 16  # for an element of type string, as TensorFlow's partitioners count it
_GATHERS = frozenset(["ResourceGather", "GatherV2", "Gather"])
_SAME_VALUE = frozenset(["Identity", "Cast", "Reshape", "Enter", "Switch", "RefEnter", "RefSwitch"])


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Callable:
  """Returns a partitioner into `num_shards` shards, or fewer if the axis is shorter.

  Args:
    num_shards: the number of shards, at least 1.
    axis: the axis to divide.

  Raises:
    ValueError: an argument is out of range. The partitioner raises it for a shape without the axis.
  """
  _check_number("num_shards", num_shards, 1)
  return _checked("fixed_size", tf.fixed_size_partitioner(num_shards, axis), axis)


def min_max_variable_partitioner(max_partitions: int, axis: int = 0,
                                 min_slice_size: int = 256 << 10) -> Callable:
  """Returns a partitioner into as many shards of a minimum size as possible, up to a number.

  Args:
    max_partitions: the largest number of shards, at least 1.
    axis: the axis to divide.
    min_slice_size: the minimum size of a shard, in bytes.

  Raises:
    ValueError: see `fixed_size_partitioner`.
  """
  _check_number("max_partitions", max_partitions, 1)
  _check_number("min_slice_size", min_slice_size, 1)
  return _checked("min_max_variable", tf.min_max_variable_partitioner(
    max_partitions, axis, min_slice_size, _STRING_BYTES), axis)


def variable_axis_size_partitioner(max_shard_bytes: int, axis: int = 0,
                                   max_shards: Optional[int] = None) -> Callable:
  """Returns a partitioner into shards of a maximum size, or of one index each if that is larger.

  Args:
    max_shard_bytes: the maximum size of a shard, in bytes.
    axis: the axis to divide.
    max_shards: the largest number of shards; it takes precedence over their size. None: no limit.

  Raises:
    ValueError: see `fixed_size_partitioner`.
  """
  _check_number("max_shard_bytes", max_shard_bytes, 1)
  if max_shards is not None:
    _check_number("max_shards", max_shards, 1)
  return _checked("variable_axis_size", tf.variable_axis_size_partitioner(
    max_shard_bytes, axis, _STRING_BYTES, max_shards), axis)


def bytes_partitioner(max_shard_bytes: int, min_shards: int = 1) -> Callable:
  """Returns a partitioner along axis 0 that divides only variables larger than a bound.

  Args:
    max_shard_bytes: variables up to this many bytes stay whole, and a shard has at most this many
      bytes. A single row may have more.
    min_shards: the least number of shards of a divided variable, as far as it has rows. Give the
      number of ps.

  Raises:
    ValueError: an argument is out of range.
  """
  _check_number("max_shard_bytes", max_shard_bytes, 1)
  _check_number("min_shards", min_shards, 1)
  by_size = tf.variable_axis_size_partitioner(max_shard_bytes, 0, _STRING_BYTES)

  def partition(shape, dtype):
    shards = by_size(shape=shape, dtype=dtype)
    if shards[0] > 1:
      shards[0] = min(max(shards[0], min_shards), shape.as_list()[0])
    return shards

  return _checked("bytes_partitioner", partition, 0)


@contextlib.contextmanager
def partition_large(max_shard_bytes: int, min_shards: int = 1) -> Iterator[None]:
  """Partitions the large variables that `tf.get_variable` makes in this scope.

  Variables that are not trainable stay whole, because programs assign to them, for example to the
  averages of batch normalisation. Variables of `tf.Variable`, which takes no partitioner, also stay
  whole.

  Args:
    max_shard_bytes, min_shards: see `bytes_partitioner`.

  Raises:
    ValueError: an argument is out of range. At the end of the scope: a lookup in one of the
      variables uses TensorFlow's default strategy.
  """
  partitioner = bytes_partitioner(max_shard_bytes, min_shards)
  partitioned = []

  def get(getter, *args, **kwargs):
    if kwargs.get("partitioner") is None and kwargs.get("trainable") is not False:
      initializer = kwargs.get("initializer")
      if initializer is not None and not callable(initializer) and not isinstance(
          initializer, tf.Tensor):  # TensorFlow divides a tensor, but not an array
        initializer = tf.convert_to_tensor(initializer)
      shape = _shape(kwargs.get("shape"), initializer)
      if shape.rank and shape.is_fully_defined() and max(
          partitioner(shape=shape, dtype=_dtype(kwargs.get("dtype"), initializer))) > 1:
        kwargs.update(partitioner=partitioner, initializer=initializer)
        partitioned.append(getter(*args, **kwargs))
        return partitioned[-1]
    return getter(*args, **kwargs)

  with tf.variable_scope(tf.get_variable_scope(), custom_getter=get):
    yield
  for table in partitioned:
    refuse_mod_lookups(table)


def refuse_mod_lookups(table) -> None:
  """Raises ValueError if the graph looks up rows of a partitioned variable by strategy "mod"."""
  for variable in table:
    for gather in uses(variable.op.outputs, _SAME_VALUE):
      divided = source_op(gather.inputs[1], _SAME_VALUE) if gather.type in _GATHERS else None
      if divided is None or divided.type != "DynamicPartition":
        continue
      if source_op(divided.inputs[1], _SAME_VALUE).type == "FloorMod":
        raise ValueError(
          "%s looks up the partitioned variable %s by the partition_strategy \"mod\", TensorFlow's "
          "default, which reads other rows than those of the ids. Give partition_strategy=\"div\", "
          "or use tf1ps.transfer.embedding_lookup." % (gather.name, table.name))


class TablePart(NamedTuple):
  """A variable that holds consecutive rows of a table."""

  variable: tf.Variable
  first: int  # the id of its first row
  rows: int  # the number of its rows


def parts_of_table(table) -> List[TablePart]:
  """Returns the parts of a table in the order of their rows; a whole variable is one part.

  Lookups need to know which rows a part holds. TensorFlow's own lookups accept any list of
  variables as a table, and return wrong values if the table is divided in a way that they do not
  expect.

  Args:
    table: a variable of fully known shape `[rows, ...]`, ref or resource, or the partitioned
      variable that `tf.get_variable` returns.

  Raises:
    TypeError: `table` is neither; a list of shards, for example, does not say how the table was
      divided.
    ValueError: the table is partitioned along an axis other than 0, or has no rows.
  """
  is_partitioned = hasattr(table, "as_tensor") and hasattr(table, "__iter__")
  if not is_partitioned and not hasattr(table, "initializer"):
    raise TypeError(
      "a table must be a variable, or the partitioned variable that tf.get_variable returned, got "
      "%r. A list of shards does not say which rows each shard holds." % (table,))
  shape = table.get_shape()
  if shape.rank is None or shape.rank < 1 or not shape.is_fully_defined():
    raise ValueError("the table %s must have rows and a fully known shape, got %s" % (
      table.name, shape))
  if not is_partitioned:
    return [TablePart(table, 0, shape.as_list()[0])]
  parts, first = [], 0
  for variable in table:
    own = variable.get_shape().as_list()
    if own[1:] != shape.as_list()[1:]:
      raise ValueError(
        "the table %s of shape %s is partitioned along another axis than 0: its part %s has the "
        "shape %s. A lookup needs whole rows: use a partitioner with axis=0." % (
          table.name, shape, variable.op.name, own))
    parts.append(TablePart(variable, first, own[0]))
    first += own[0]
  return parts


def _shape(shape, initializer) -> tf.TensorShape:
  return initializer.shape if isinstance(initializer, tf.Tensor) else tf.TensorShape(shape)


def _dtype(dtype, initializer) -> tf.DType:
  return initializer.dtype if isinstance(initializer, tf.Tensor) else tf.as_dtype(
    dtype or tf.float32)


def _checked(name, stock, axis) -> Callable:
  """Returns the partitioner with a check of the shape before it."""
  if isinstance(axis, bool) or not isinstance(axis, numbers.Integral) or axis < 0:
    raise ValueError("axis must be the number of an axis, 0 or more, got %r" % (axis,))

  def partition(shape, dtype=tf.float32, **unused_arguments) -> List[int]:
    shape = tf.TensorShape(shape)
    if shape.rank is None or not shape.is_fully_defined():
      raise ValueError("%s can divide a variable of a fully known shape only, got %s" % (
        name, shape))
    if axis >= shape.rank:
      raise ValueError("%s divides along axis %d, and the variable's shape is %s. Give the "
                       "partitioner only to variables that have this axis." % (name, axis, shape))
    if shape.num_elements() == 0:
      return [1] * shape.rank
    return list(stock(shape=shape, dtype=tf.as_dtype(dtype)))

  return partition


def _check_number(name, value, least) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
    raise ValueError("%s must be an integer of at least %d, got %r" % (name, least, value))
