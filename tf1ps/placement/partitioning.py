"""Partitioners: variables that are divided into shards, so that several ps hold one.

A partitioner is what `tf.get_variable` and `tf.variable_scope` take as `partitioner=`: a function
of a variable's shape and dtype that returns the number of shards along each axis. `fixed_size`,
`min_max_variable` and `variable_axis_size` are TensorFlow's, with arguments that are checked first,
and errors that say which axis is missing; `by_bytes` bounds a shard and spreads it over the ps.

`partition_large` opens a scope in which large variables are partitioned by themselves:

1. a trainable variable of more bytes than the bound gets `by_bytes`, unless the program gave a
   partitioner of its own;
2. all others stay as they are. (A partitioner of a scope makes a partitioned variable of one shard
   and another name out of each of them, which cannot be assigned to.)
3. At the end, a lookup that does not fit such a partition is refused (mod_lookups.py).

The device setter places each shard for itself: with greedy placement by bytes. A checkpoint holds a
partitioned variable as one tensor, so it is restored whatever the number of shards.
"""

from __future__ import annotations

import contextlib
import numbers
from typing import Callable, Iterator, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.placement import mod_lookups

_STRING_BYTES = 16  # that an element of type string is counted for, as by TensorFlow's partitioners


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Callable:
  """A partitioner into so many shards, or one for each index where there are fewer.

  Args:
    num_shards: how many, at least 1.
    axis: along which.

  Raises:
    ValueError: a number that is out of range. So does the partitioner, for a shape without axis.
  """
  _check_number("num_shards", num_shards, 1)
  return _checked("fixed_size", tf.fixed_size_partitioner(num_shards, axis), axis)


def min_max_variable_partitioner(max_partitions: int, axis: int = 0,
                     min_slice_size: int = 256 << 10) -> Callable:
  """A partitioner into as many shards as are of a least size each, up to a number.

  Args:
    max_partitions: the most shards, at least 1.
    axis: along which.
    min_slice_size: of a shard, in bytes.

  Raises:
    ValueError: as `fixed_size`.
  """
  _check_number("max_partitions", max_partitions, 1)
  _check_number("min_slice_size", min_slice_size, 1)
  return _checked("min_max_variable", tf.min_max_variable_partitioner(
    max_partitions, axis, min_slice_size, _STRING_BYTES), axis)


def variable_axis_size_partitioner(max_shard_bytes: int, axis: int = 0,
                       max_shards: Optional[int] = None) -> Callable:
  """A partitioner into shards of at most a size, or of one index each where that is larger.

  Args:
    max_shard_bytes: of a shard, in bytes.
    axis: along which.
    max_shards: the most shards, which may then be larger; None: any number.

  Raises:
    ValueError: as `fixed_size`.
  """
  _check_number("max_shard_bytes", max_shard_bytes, 1)
  if max_shards is not None:
    _check_number("max_shards", max_shards, 1)
  return _checked("variable_axis_size", tf.variable_axis_size_partitioner(
    max_shard_bytes, axis, _STRING_BYTES, max_shards), axis)


def bytes_partitioner(max_shard_bytes: int, min_shards: int = 1) -> Callable:
  """A partitioner along axis 0 of what is larger than a shard may be.

  Args:
    max_shard_bytes: the bytes up to which a variable stays whole, and that a shard has at most; a
      single row may have more.
    min_shards: of a variable that is partitioned, as far as it has rows: the number of ps.

  Returns:
    The partitioner.

  Raises:
    ValueError: a number that is out of range.
  """
  _check_number("max_shard_bytes", max_shard_bytes, 1)
  _check_number("min_shards", min_shards, 1)
  stock = tf.variable_axis_size_partitioner(max_shard_bytes, 0, _STRING_BYTES)

  def partition(shape, dtype):
    shards = stock(shape=shape, dtype=dtype)
    if shards[0] > 1:
      shards[0] = min(max(shards[0], min_shards), shape.as_list()[0])
    return shards

  return _checked("by_bytes", partition, 0)


@contextlib.contextmanager
def partition_large(max_shard_bytes: int, min_shards: int = 1) -> Iterator[None]:
  """Partitions the large variables that `tf.get_variable` makes inside, in the default graph.

  Not those that are not trainable, such as the averages of batch normalisation, to which programs
  assign; nor what `tf.Variable` makes, which knows no partitioner.

  Args:
    max_shard_bytes: see `by_bytes`.
    min_shards: see `by_bytes`.

  Raises:
    ValueError: a number that is out of range; or, at the end of the scope, a lookup in one of them
      by TensorFlow's default strategy.
  """
  partitioner = bytes_partitioner(max_shard_bytes, min_shards)
  partitioned = []

  def get(getter, *args, **kwargs):
    if kwargs.get("partitioner") is None and kwargs.get("trainable") is not False:
      initializer = kwargs.get("initializer")
      if initializer is not None and not callable(initializer) and not isinstance(
          initializer, tf.Tensor):  # TensorFlow takes the shards of a tensor only
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
    mod_lookups.check(table)


def _shape(shape, initializer) -> tf.TensorShape:
  return initializer.shape if isinstance(initializer, tf.Tensor) else tf.TensorShape(shape)


def _dtype(dtype, initializer) -> tf.DType:
  return initializer.dtype if isinstance(initializer, tf.Tensor) else tf.as_dtype(
    dtype or tf.float32)


def _checked(name, stock, axis) -> Callable:
  """The partitioner, behind a look at the shape."""
  if isinstance(axis, bool) or not isinstance(axis, numbers.Integral) or axis < 0:
    raise ValueError("axis must be the number of an axis, 0 or more, got %r" % (axis,))

  def partition(shape, dtype=tf.float32, **unused_arguments) -> List[int]:
    shape = tf.TensorShape(shape)
    if shape.rank is None or not shape.is_fully_defined():
      raise ValueError("%s can divide a variable of a fully known shape only, got %s" % (
        name, shape))
    if axis >= shape.rank:
      raise ValueError("%s was to divide along axis %d, and the variable's shape is %s: give the "
                       "partitioner to those variables that have this axis" % (name, axis, shape))
    if shape.num_elements() == 0:
      return [1] * shape.rank
    return list(stock(shape=shape, dtype=tf.as_dtype(dtype)))

  return partition


def _check_number(name, value, least) -> None:
  if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
    raise ValueError("%s must be an integer of at least %d, got %r" % (name, least, value))
