"""A training step as a value: the operation that the loop runs, and the hooks beside it.

Every replication scheme builds a `Step`. The training loop runs its `train_op` until a stop, and
the hooks read its other fields, so the loop does not depend on the scheme.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import InputPositions
from tf1ps.pipeline import RangeReport
from tf1ps.replication import AgeTable
from tf1ps.training import batch_ahead, repeated_data
from tf1ps.training import remainder as remainder_lib
from tf1ps.transfer import Accumulated, AccumulatedRemainder


class Vote(NamedTuple):
  """How workers that make each step together agree on another step."""

  ahead: batch_ahead.BatchAhead  # reads batches before their step
  vote: tf.Tensor  # float32 [], a placeholder: 1.0: another step, 0.0: none; below 0 after a signal
  mean: tf.Tensor  # float32 [], the mean of all workers' votes


class Step(NamedTuple):
  """One worker's training step."""

  train_op: tf.Operation  # one update of the variables
  loss: tf.Tensor  # float32 [], of the batch; the mean over the batches of a synchronous update
  # int [], the size of the batch; a run that fetches it draws a batch. None: not known.
  examples: Optional[tf.Tensor]
  counted: Optional[tf.Operation] = None  # counts the age of an asynchronous update's gradient
  age_tables: List[AgeTable] = []  # count the ages of this step and of `others`
  taken: Optional[tf.Tensor] = None  # bool []: whether the gradient is in an update; None: always
  # Whether a run of several steps may read a value before the rest of the previous update is made.
  reads_early: bool = True
  global_step: Optional[tf.Tensor] = None  # int64 [], after a synchronous update; None: unknown
  # Counts this worker's remaining data when the data of another worker end.
  remainder: Optional[remainder_lib.Remainder] = None
  partial: Optional[AccumulatedRemainder] = None  # makes the update of the batches added up so far
  vote: Optional[Vote] = None  # where workers make each step together
  positions: Optional[InputPositions] = None  # the hook that keeps the input's position
  repeats: Optional[repeated_data.RepeatedData] = None  # the hook that begins the data again
  others: Dict[str, "Step"] = {}  # asynchronous in-graph: the other replicas' steps, by device
  step_after: Optional[tf.Tensor] = None  # int64 [], in `others`: the global step after the update
  hooks: List[tf.train.SessionRunHook] = []  # the step's own hooks, in their order
  program_hooks: Sequence[tf.train.SessionRunHook] = ()  # of ModelSpec
  hint: str = ""  # a hint at another optimizer, or ""


class Batches:
  """The gradients of a step, of one batch or of several (`--gradient_accumulation_steps`).

  Attributes:
    grads_and_vars: the gradients of all batches, as `compute_gradients` returns them.
    loss: float32 [], the mean loss.
    examples: int [], the examples of all batches.
    range_reports: the reports of all batches.
  """

  def __init__(self, grads_and_vars: list, loss: tf.Tensor, examples: tf.Tensor, count: int,
               range_reports: List[RangeReport]):
    """Builds the operations of `count` batches in the default graph, from those of one batch.

    `examples` is the size of the batch, an int scalar; `range_reports` are the shard's.
    """
    self.grads_and_vars, self.loss, self.examples = grads_and_vars, loss, examples
    self.range_reports = range_reports
    self._accumulated: Optional[Accumulated] = None
    if count == 1:
      return
    self._accumulated = built = Accumulated(
      grads_and_vars, loss, examples, count, [tuple(report) for report in range_reports])
    self.range_reports = [
      RangeReport(*report) for reports in built.of_batches for report in reports]
    self.grads_and_vars, self.loss, self.examples = (
      built.grads_and_vars, built.loss, built.batch_size)

  def complete(self, step: Step) -> Step:
    """Returns the step with an operation that makes the update of a part of its batches."""
    if self._accumulated is None:
      return step
    return step._replace(partial=self._accumulated.remainder(
      step.train_op, dict(loss=step.loss, taken=step.taken, counted=step.counted)))


def push_partial(partial: AccumulatedRemainder, call_inside: Callable) -> Optional[dict]:
  """Makes the update of the batches that were added up before the end of the data.

  Returns a dict of "size", "loss" and, if it is known, "taken". Returns None if no batch was added
  up, or if another worker's end has ended training.
  """
  def push(session):
    if not session.run(partial.pending):
      return None
    fetches = dict(partial.fetches, op=partial.train_op, size=partial.batch_size)
    return session.run({name: fetch for name, fetch in fetches.items() if fetch is not None})

  try:
    return call_inside(push)
  except tf.errors.OutOfRangeError:
    return None


def summarize(tag: str, value) -> None:
  """Adds a summary with exactly this tag, of a float scalar.

  tf.summary.scalar would name it "loss_1" beside an operation "loss".
  """
  tf.add_to_collection(tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(
    tags=tag, values=tf.convert_to_tensor(value)))
