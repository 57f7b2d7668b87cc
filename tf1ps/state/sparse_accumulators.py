"""Sparse gradient accumulators behind names: gradients of some rows of a variable.

TensorFlow's `SparseConditionalAccumulator` divides each row by the number of gradients that have
it, so that a row which one of ten workers has counts as if all ten had it. Here the mean is that of
the dense gradients: each row's sum is divided by n. The other can be asked for.

Otherwise as the dense kind (accumulators.py): exactly n, the oldest ones, and drops are counted.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state import accumulator_steps
from tf1ps.state.accumulator_steps import Applied


class TakenRows(NamedTuple):
  """What a try_take took."""

  mean: tf.IndexedSlices  # rows `[k, ...]` with ascending indices `[k]`; none where none was taken
  taken: tf.Tensor  # bool scalar: whether there were n gradients
  present: tf.Tensor  # int32 scalar: gradients that were there


class Rows(NamedTuple):
  """Rows of a gradient, as numpy values."""

  indices: np.ndarray  # int64 [k], ascending
  values: np.ndarray  # [k, ...]


class SparseAccumulator(accumulator_steps.NamedAccumulator):
  """A sparse gradient accumulator; where it lives, and its container, are those of a queue."""

  def __init__(self, dtype, shape, shared_name: Optional[str] = None, capacity: int = -1,
               name: str = "sparse_accumulator", *, device: Optional[str] = None,
               container: Optional[str] = None):
    """Builds the accumulator's operations in the default graph.

    Args:
      dtype: of the gradients.
      shape: of the variable, `[rows, ...]`; all but the number of rows must be known.
      shared_name, capacity, name, device, container: as for `accumulators.Accumulator`.

    Raises:
      ValueError: a capacity of 0, a shape that is not known, an illegal container.
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
    """Builds an operation that applies a gradient, and never blocks; see `Accumulator.try_apply`.

    Args:
      gradient: rows of the variable; those of an index that occurs twice are added up.
      local_step, worker, name: as there.
    """
    with tf.name_scope(name, "%s_try_apply" % self._guard.name_in_graph):
      values = tf.convert_to_tensor(gradient.values, self.dtype)
      values.shape[1:].assert_is_compatible_with(self.shape[1:])
      prepared = self._prepare([tf.cast(gradient.indices, tf.int64), values])
      return accumulator_steps.applied(self._apply_step(prepared, local_step, worker)[0])

  def try_take(self, n, by_row=False, name=None) -> TakenRows:
    """Builds an operation that averages n gradients if they are there, and never blocks.

    Args:
      n: how many; an integer or an int32 scalar.
      by_row: whether each row is divided by the number of gradients that have it, as TensorFlow
        does, and not by n.
      name: of the operation.
    """
    with tf.name_scope(name, "%s_try_take" % self._guard.name_in_graph):
      indices, values, present, taken = self._rows_step(n, tf.constant(by_row))
      indices.set_shape([None])
      values.set_shape(tf.TensorShape([None]).concatenate(self.shape[1:]))
      return TakenRows(tf.IndexedSlices(values, indices), taken, present)

  def apply(self, session, indices, values, local_step: int = 0,
            worker: Optional[int] = None) -> bool:
    """Applies a gradient; see `accumulators.Accumulator.apply`.

    Args:
      session: a session of the accumulator's graph; no hooks are run.
      indices: of the rows, `[k]`; those of an index that occurs twice are added up.
      values: the rows, `[k, ...]`.
      local_step, worker: as there.
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
    """Waits for n gradients and takes the mean of the n oldest; the others stay.

    Args:
      session, n, timeout: as for `accumulators.Accumulator.take`, and so are the errors.
      by_row: whether each row is divided by the number of gradients that have it, and not by n.
    """
    return Rows(*self._take(session, n, timeout, {self._by_row: by_row}))

  def _prepare(self, values):
    """Adds up the rows of an index that occurs twice, so that each row counts once."""
    indices, rows = values
    indices, position = tf.unique(indices)
    return [indices, tf.math.unsorted_segment_sum(rows, position, tf.size(indices))]

  def _rows_step(self, n, by_row, meets=True):
    return self._take_step(n, lambda: self._mean(n, by_row), self._no_rows, meets)

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
    total = tf.math.unsorted_segment_sum(rows, position, tf.size(indices))
    divisor = tf.where_v2(by_row, counts, tf.zeros_like(counts) + n)
    divisor = tf.reshape(
      tf.cast(divisor, self.dtype), tf.concat([[-1], tf.ones([self.shape.ndims - 1], tf.int32)], 0))
    order = tf.argsort(indices)
    return [tf.gather(indices, order), tf.gather(total / divisor, order)]

  def _fed_take(self, n):
    self._by_row = tf.placeholder_with_default(tf.constant(False), [], "by_row")
    return self._rows_step(n, self._by_row, meets=False)
