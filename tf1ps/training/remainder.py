"""What is left of a worker's data when another worker's end has ended training (stop_all).

1. Each step notes the size of its batch on the worker, before its gradient goes anywhere. The step
   in which the end is learned has drawn a batch for an update that nobody makes.
2. Then the rest of the data is drawn, batch by batch, within a limit: only the input runs.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook, LimitExceeded, call_within
from tf1ps.compat import TIMING
from tf1ps.replication import is_end_of_replicas


class Left(NamedTuple):
  """The examples of one worker that no update has seen."""

  drawn: int  # those of the batch that was drawn for an update that was not made
  undrawn: int  # those that were still to come
  is_all: bool  # whether the data's end was seen; else there are more that were still to come

  def __str__(self):
    return "of its own, %d examples were drawn for no update and %s%d left" % (
      self.drawn, "" if self.is_all else "at least ", self.undrawn)


class Remainder:
  """Counts what is left.

  Attributes:
    note: the operation that notes the size of the batch; a training step must depend on it.
  """

  def __init__(self, batch_examples: tf.Tensor, of_step: Optional[tf.Tensor] = None):
    """Builds the operations in the default graph.

    Args:
      batch_examples: the size of a batch, an int scalar; whoever runs it draws a batch.
      of_step: the examples of a step, where that is of several batches.
    """
    noted = batch_examples if of_step is None else of_step
    self._size = batch_examples
    with tf.get_default_graph().colocate_with(batch_examples.op):
      handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="tf1ps.batch_examples")
      self.note = tf.raw_ops.AssignVariableOp(
        resource=handle, value=tf.cast(noted, tf.int64))
      self._noted = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)

  def count(self, session: tf.Session, limit: float = TIMING.last_read_limit) -> Left:
    """Draws what is left, after a step that has learned of the end.

    Args:
      session: that of the step.
      limit: seconds for all.
    """
    until = time.monotonic() + limit
    drawn, undrawn, is_all = 0, 0, False

    def run(fetched):
      left = max(0.001, until - time.monotonic())
      options = tf.RunOptions(timeout_in_ms=max(1, int(1000 * left)))
      # An input that sits in Python hears of no timeout: its run is left behind.
      return int(call_within(
        left + TIMING.call_grace, "counting what is left", session.run, fetched, options=options))

    try:
      drawn = run(self._noted)
      while time.monotonic() < until:
        undrawn += run(self._size)
    except tf.errors.OutOfRangeError:
      is_all = True
    except (tf.errors.OpError, LimitExceeded):
      pass  # the limit, or whatever else keeps the rest from being seen
    return Left(drawn, undrawn, is_all)


class EndOfDataHook(LifecycleHook):
  """Learns why the data ended.

  Attributes:
    was_ended: whether the end of another worker has ended training.
    left: what was left of this worker's data then, where that is counted; else None.
  """

  def __init__(self, remainder: Optional[Remainder] = None):
    """Creates the hook; `remainder` counts what is left."""
    self._remainder = remainder
    self.was_ended = False
    self.left: Optional[Left] = None

  def on_end_of_data(self, session, error):
    self.was_ended = is_end_of_replicas(error)
    if self.was_ended and self._remainder is not None:
      self.left = session.call_inside(self._remainder.count)
