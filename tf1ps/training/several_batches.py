"""The gradients of a step from several batches of the input (`--gradient_accumulation_steps`).

`Step` stands between the gradients of a batch and the update, and is what it was given where there
is one batch alone. At the end of the data `push_rest` has the update made of what was added up.
"""

from __future__ import annotations

from typing import Callable, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import RangeReport
from tf1ps.training import replica as replica_lib
from tf1ps.transfer import Accumulated, AccumulatedRemainder


class Step:
  """What a step is made of.

  Attributes:
    grads_and_vars: of all batches, as `compute_gradients` returns them.
    loss: the mean loss.
    batch_size: the examples of all batches.
    range_reports: of all batches; each run reports the ranges of all its records.
  """

  def __init__(self, grads_and_vars: list, loss: tf.Tensor, batch_size: tf.Tensor, batches: int,
               range_reports: List[RangeReport]):
    """Builds the step in the default graph.

    Args:
      grads_and_vars: of one batch.
      loss: its loss.
      batch_size: its examples, an int scalar.
      batches: how many batches make the step.
      range_reports: of one batch, as in the shard's attribute.
    """
    self.grads_and_vars, self.loss, self.batch_size = grads_and_vars, loss, batch_size
    self.range_reports = range_reports
    self._accumulated: Optional[Accumulated] = None
    if batches == 1:
      return
    self._accumulated = built = Accumulated(
      grads_and_vars, loss, batch_size, batches, [tuple(one) for one in range_reports])
    self.range_reports = [RangeReport(*one) for reports in built.of_batches for one in reports]
    self.grads_and_vars, self.loss, self.batch_size = (
      built.grads_and_vars, built.loss, built.batch_size)

  def with_rest(self, replica: replica_lib.Replica) -> replica_lib.Replica:
    """The replica, with what pushes a part of the batches."""
    if self._accumulated is None:
      return replica
    taken = replica.taken if replica.round_result is None else replica.round_result.taken
    return replica._replace(rest=self._accumulated.remainder(
      replica.train_op, dict(loss=replica.loss, taken=taken, counted=replica.counted)))


def push_rest(rest: AccumulatedRemainder, call_inside: Callable) -> Optional[dict]:
  """Pushes what was added up before the end of the data.

  Args:
    rest: of the replica.
    call_inside: calls a function with the session.

  Returns:
    {"size", "loss", "taken"}, the latter where it is known; None: nothing was there, or the end of
    another worker has ended training.
  """
  def push(session):
    if not session.run(rest.pending):
      return None
    fetches = dict(rest.fetches, op=rest.train_op, size=rest.batch_size)
    return session.run({name: one for name, one in fetches.items() if one is not None})

  try:
    return call_inside(push)
  except tf.errors.OutOfRangeError:
    return None
