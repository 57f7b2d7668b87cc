"""Counts a worker's remaining data when the end of another worker ends training (stop_all).

1. Each step stores the size of its batch on the worker before it sends its gradient. The step that
   raises the end of training has drawn a batch without an update.
2. Then the hook draws the remaining data, batch by batch, within a limit. Only the input runs.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook, LimitExceeded, call_within
from tf1ps.compat import TIMING
from tf1ps.replication import is_end_of_replicas
from tf1ps.training.counts import Counts


class Left(NamedTuple):
  """The examples of one worker that are in no update."""

  drawn: int  # examples of the batch that was drawn without an update
  undrawn: int  # examples that were not drawn
  is_all: bool  # whether `undrawn` reaches to the end of the data; else more examples are left

  def __str__(self):
    return "%d of its examples were drawn without an update, %s%d were left" % (
      self.drawn, "" if self.is_all else "at least ", self.undrawn)


class Remainder:
  """Counts the data that are left.

  Attributes:
    note: the operation that stores the size of the batch; a training step must depend on it.
  """

  def __init__(self, batch_examples: tf.Tensor, of_step: Optional[tf.Tensor] = None):
    """Builds the operations in the default graph.

    Args:
      batch_examples: the size of a batch, an int scalar; a run that fetches it draws a batch.
      of_step: the examples of a step of several batches, an int scalar; None for one batch.
    """
    noted = batch_examples if of_step is None else of_step
    self._size = batch_examples
    with tf.get_default_graph().colocate_with(batch_examples.op):
      handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="tf1ps.batch_examples")
      self.note = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.cast(noted, tf.int64))
      self._noted = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)

  def count(self, session: tf.Session, limit: float = TIMING.last_read_limit) -> Left:
    """Draws the remaining data, within `limit` seconds, and returns the count.

    Call it after the step that has raised the end of training, with the step's session.
    """
    until = time.monotonic() + limit
    drawn, undrawn, is_all = 0, 0, False

    def run(fetched):
      left = max(0.001, until - time.monotonic())
      options = tf.RunOptions(timeout_in_ms=max(1, int(1000 * left)))
      # TensorFlow cannot time out an input in Python: call_within abandons such a run.
      return int(call_within(
        left + TIMING.call_grace, "counting what is left", session.run, fetched, options=options))

    try:
      drawn = run(self._noted)
      while time.monotonic() < until:
        undrawn += run(self._size)
    except tf.errors.OutOfRangeError:
      is_all = True
    except (tf.errors.OpError, LimitExceeded):
      pass  # The limit or an error ends the count.
    return Left(drawn, undrawn, is_all)


class EndOfDataHook(LifecycleHook):
  """Notes why the data ended."""

  def __init__(self, counts: Counts, remainder: Optional[Remainder] = None):
    """Creates the hook; `remainder` counts the data that are left."""
    self._counts, self._remainder = counts, remainder

  def after_run(self, run_context, run_values):
    self._counts.data_ended = False

  def on_end_of_data(self, session, error):
    self._counts.data_ended = True
    self._counts.was_ended = is_end_of_replicas(error)
    if self._counts.was_ended and self._remainder is not None:
      self._counts.left = session.call_inside(self._remainder.count)
