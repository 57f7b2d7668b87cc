"""Gradient accumulators behind names, dense and sparse, that average exactly n gradients.

TensorFlow's `ConditionalAccumulator` averages all gradients that have arrived, however many were
requested, and drops a gradient that is too old in silence. Here

1. `apply` returns whether the gradient was taken, and counts dropped gradients per worker;
2. `take` averages the n oldest gradients and leaves the others for the next take; a take that times
   out takes nothing;
3. `try_apply` and `try_take` build operations that never block, for a step that runs on the ps.

`apply` compares the age of a gradient when it arrives; gradients that already wait are not dropped.

TensorFlow's `SparseConditionalAccumulator` divides each row by the number of gradients that have
the row, so that a row of one worker in ten counts as if all ten had it. Here the sparse mean equals
the dense one: each row's sum is divided by n. `by_row` chooses TensorFlow's mean.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state.accumulator_steps import Applied, NamedAccumulator


class TakenMean(NamedTuple):
  """The result of a try_take."""

  mean: tf.Tensor  # the mean of n gradients, of the accumulator's shape; zeros if it took none
  taken: tf.Tensor  # bool scalar: whether there were n gradients
  present: tf.Tensor  # int32 scalar: gradients that were there


class TakenRows(NamedTuple):
  """The result of a sparse try_take."""

  mean: tf.IndexedSlices  # rows `[k, ...]` with ascending indices `[k]`; no row if it took none
  taken: tf.Tensor  # bool scalar: whether there were n gradients
  present: tf.Tensor  # int32 scalar: gradients that were there


class Rows(NamedTuple):
  """Rows of a gradient, as numpy values."""

  indices: np.ndarray  # int64 [k], ascending
  values: np.ndarray  # [k, ...]


class Accumulator(NamedAccumulator):
  """A dense gradient accumulator. Its device and container are chosen like a queue's."""

  def __init__(self, dtype, shape, shared_name: Optional[str] = None, capacity: int = -1,
               name: str = "accumulator", *, device: Optional[str] = None,
               container: Optional[str] = None):
    """Builds the accumulator's operations in the default graph.

    Args:
      dtype: of the gradients; floating-point or complex.
      shape: of a gradient; fully known.
      shared_name: the name under which other processes use it; None: private to each session.
      capacity: the number of gradients that may wait; below 0: no limit.
      name: of the operation.
      device: its device, such as "/job:ps/task:1". None: see pinning.py.
      container: its container. None: see pinning.py.

    Raises:
      ValueError: a dtype without means, such as int32, a capacity of 0, an unknown shape, or an
        illegal container.
    """
    shape = tf.TensorShape(shape)
    if not shape.is_fully_defined():
      raise ValueError("the shape of an accumulator must be fully known, got %s" % (shape,))
    dtype = tf.as_dtype(dtype)
    self._make(dtype, shape, [dtype], [shape], shared_name, capacity, device, container, name)

  def try_apply(self, gradient, local_step=0, worker=-1, name=None) -> Applied:
    """Builds an operation that applies a gradient, and never blocks.

    Args:
      gradient: a tensor of the accumulator's shape.
      local_step: an integer scalar: the time step at which the gradient was computed.
      worker: an integer scalar: the index of the worker to count it for; -1: no worker.
      name: of the operation.

    Raises:
      tf.errors.InvalidArgumentError: when run, "container ... was reset".
    """
    with tf.name_scope(name, "%s_try_apply" % self._guard.name_in_graph):
      gradient = tf.convert_to_tensor(gradient, self.dtype)
      gradient.shape.assert_is_compatible_with(self.shape)
      return self._try_apply([gradient], local_step, worker)

  def try_take(self, n, name=None) -> TakenMean:
    """Builds an operation that averages n gradients if they are there, and never blocks.

    It computes the mean where the accumulator lives.

    Args:
      n: the number of gradients; an integer or an int32 scalar.
      name: the name of the operation.

    Raises:
      tf.errors.InvalidArgumentError: when run, "container ... was reset".
    """
    with tf.name_scope(name, "%s_try_take" % self._guard.name_in_graph):
      mean, present, taken = self._take_step(
        n, lambda: [self._mean(n)], lambda: [tf.zeros(self.shape, self.dtype)])
      mean.set_shape(self.shape)
      return TakenMean(mean, taken, present)

  def apply(self, session, gradient, local_step: int = 0, worker: Optional[int] = None) -> bool:
    """Applies a gradient; returns False if it is older than the time step, and was dropped.

    Args:
      session: a session of the accumulator's graph; its hooks do not run.
      gradient: a value of the accumulator's shape.
      local_step: the time step at which the gradient was computed.
      worker: the index of the worker to count it for.

    Raises:
      QueueFull: as many gradients as the capacity wait; it was dropped and counted.
      QueueReset, QueueMismatch: see queue_errors.py.
    """
    return self._apply(session, [gradient], local_step, worker)

  def take(self, session, n: int, timeout: float = 300.0) -> np.ndarray:
    """Waits for n gradients and returns the mean of the n oldest; the others stay.

    Args:
      session: a session of the accumulator's graph; its hooks do not run.
      n: the number of gradients.
      timeout: seconds; 0: it asks once.

    Raises:
      ValueError: n is above the capacity.
      QueueEmpty: the time was over; nothing was taken.
      QueueUnanswered: the ps did not answer; gradients may have been taken.
      QueueReset, QueueMismatch: see queue_errors.py.
    """
    mean, = self._take(session, n, timeout)
    return mean[0]

  def _prepare(self, values):
    return values

  def _mean(self, n):
    # One by one: a dequeue_many would copy them.
    def take_one():
      gradient, = tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=self._types)
      gradient.set_shape(self.shape)
      return tf.cast(gradient, self._sum_dtype)

    _, total = tf.while_loop(
      lambda i, _: i < n, lambda i, total: [i + 1, total + take_one()],
      [tf.constant(1), take_one()], parallel_iterations=1)
    return tf.cast(total / tf.cast(n, self._sum_dtype), self.dtype)

  def _fed_take(self, n):
    # A take of nothing sends an empty tensor instead of one of the gradient's size.
    nothing = [0] + self.shape.as_list()
    return self._take_step(n, lambda: [self._mean(n)[tf.newaxis]],
                           lambda: [tf.zeros(nothing, self.dtype)], may_be_first=False)


class SparseAccumulator(NamedAccumulator):
  """A sparse gradient accumulator. Its device and container are chosen like a queue's."""

  def __init__(self, dtype, shape, shared_name: Optional[str] = None, capacity: int = -1,
               name: str = "sparse_accumulator", *, device: Optional[str] = None,
               container: Optional[str] = None):
    """Builds the operations in the default graph; arguments and errors are those of `Accumulator`.

    `shape` is that of the variable, `[rows, ...]`; all but the number of rows must be known.
    """
    shape = tf.TensorShape(shape)
    if shape.ndims is None or shape.ndims < 1 or not shape[1:].is_fully_defined():
      raise ValueError(
        "the shape of a sparse accumulator must be known but for its first dimension, got %s" % (
          shape,))
    dtype = tf.as_dtype(dtype)
    rows = tf.TensorShape([None])
    self._make(dtype, shape, [tf.int64, dtype], [rows, rows.concatenate(shape[1:])],
               shared_name, capacity, device, container, name)

  def try_apply(self, gradient: tf.IndexedSlices, local_step=0, worker=-1, name=None) -> Applied:
    """Builds an operation that applies a gradient; see `Accumulator.try_apply`.

    The gradient has rows of the variable; the rows of equal indices are added up.
    """
    with tf.name_scope(name, "%s_try_apply" % self._guard.name_in_graph):
      values = tf.convert_to_tensor(gradient.values, self.dtype)
      values.shape[1:].assert_is_compatible_with(self.shape[1:])
      prepared = self._prepare([tf.cast(gradient.indices, tf.int64), values])
      return self._try_apply(prepared, local_step, worker)

  def try_take(self, n, by_row=False, name=None) -> TakenRows:
    """Builds an operation that averages n gradients; see `Accumulator.try_take`.

    With `by_row`, it divides each row by the number of gradients that have it, like TensorFlow,
    instead of by n.
    """
    with tf.name_scope(name, "%s_try_take" % self._guard.name_in_graph):
      indices, values, present, taken = self._rows_step(n, tf.constant(by_row))
      indices.set_shape([None])
      values.set_shape(tf.TensorShape([None]).concatenate(self.shape[1:]))
      return TakenRows(tf.IndexedSlices(values, indices), taken, present)

  def apply(self, session, indices, values, local_step: int = 0,
            worker: Optional[int] = None) -> bool:
    """Applies a gradient with the rows `values` `[k, ...]`, by their indices `[k]`.

    See `Accumulator.apply`. The rows of equal indices are added up.
    """
    indices, values = np.asarray(indices, np.int64), np.asarray(values)
    rows = self.shape.as_list()[0]
    if indices.ndim != 1 or values.shape[:1] != indices.shape:
      raise ValueError("a gradient has as many rows as indices, got %s and %s" % (
        values.shape, indices.shape))
    if indices.size and (indices.min() < 0 or rows is not None and indices.max() >= rows):
      raise ValueError("indices must be from 0 to %s, got %s" % (
        "the last row" if rows is None else rows - 1, indices.tolist()))
    return self._apply(session, [indices, values], local_step, worker)

  def take(self, session, n: int, timeout: float = 300.0, by_row: bool = False) -> Rows:
    """Waits for n gradients and returns the mean of the n oldest; see `Accumulator.take`.

    With `by_row`, it divides each row by the number of gradients that have it, instead of by n.
    """
    return Rows(*self._take(session, n, timeout, {self._by_row: by_row}))

  def _prepare(self, values):
    """Adds up the rows of equal indices, so that a gradient has each row once."""
    indices, rows = values
    indices, position = tf.unique(indices)
    return [indices, tf.math.unsorted_segment_sum(rows, position, tf.size(indices))]

  def _rows_step(self, n, by_row, may_be_first=True):
    return self._take_step(n, lambda: self._mean(n, by_row), self._no_rows, may_be_first)

  def _no_rows(self):
    return [tf.zeros([0], tf.int64), tf.zeros([0] + self.shape.as_list()[1:], self.dtype)]

  def _mean(self, n, by_row):
    def take_one(i, indices, rows):
      more = tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=self._types)
      return [i + 1, tf.concat([indices, more[0]], 0), tf.concat([rows, more[1]], 0)]

    any_rows = tf.TensorShape([None])
    _, indices, rows = tf.while_loop(
      lambda i, *_: i < n, take_one, [tf.constant(0)] + self._no_rows(),
      [tf.TensorShape([]), any_rows, any_rows.concatenate(self.shape[1:])], parallel_iterations=1)
    indices, position, counts = tf.unique_with_counts(indices)
    total = tf.math.unsorted_segment_sum(
      tf.cast(rows, self._sum_dtype), position, tf.size(indices))
    divisor = tf.where_v2(by_row, counts, tf.zeros_like(counts) + n)
    divisor = tf.reshape(
      tf.cast(divisor, self._sum_dtype),
      tf.concat([[-1], tf.ones([self.shape.ndims - 1], tf.int32)], 0))
    order = tf.argsort(indices)
    mean = tf.cast(total / divisor, self.dtype)
    return [tf.gather(indices, order), tf.gather(mean, order)]

  def _fed_take(self, n):
    self._by_row = tf.placeholder_with_default(tf.constant(False), [], "by_row")
    return self._rows_step(n, self._by_row, may_be_first=False)
