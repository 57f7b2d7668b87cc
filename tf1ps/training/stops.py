"""What ends a worker's training, as the flags say, and the reason that it gives afterwards."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.replication import STOP_ALL
from tf1ps.training import options as options_lib
from tf1ps.training import progress, remainder, stopping


class Stops:
  """The ends that the flags ask for.

  Attributes:
    hooks: those that request a stop.
  """

  def __init__(self, options: options_lib.Options, tracker: GlobalStepTracker,
               counter: progress.ExampleCounter, index: int, count: int):
    """Creates them.

    Args:
      options: what the flags say.
      tracker: the tracker of the global step.
      counter: of this worker's examples.
      index: this worker's place among those that train, from 0.
      count: how many there are.

    Raises:
      ValueError: fewer examples than workers.
    """
    self._options, self._counter = options, counter
    self._by_reason: Dict[str, object] = {}
    self._examples: Optional[stopping.StopAtExamples] = None
    if options.steps:
      self._by_reason["reached --steps=%d" % options.steps] = stopping.StopAtStep(
        tracker, options.steps, 1 if options.is_synchronous else count * options.steps_in_flight,
        options.steps_per_execution)
    if options.examples:
      if options.examples < count:
        raise ValueError("--examples=%d is less than one for each of the %d workers" % (
          options.examples, count))
      if options.replication == "in_graph":
        index, count = 0, 1  # the chief counts for all
      self._examples = stopping.StopAtExamples(
        counter, stopping.part_of(options.examples, index, count))
      self._by_reason["trained on its part of --examples=%d" % options.examples] = self._examples
    self.hooks: List[tf.train.SessionRunHook] = [
      stop for stop in self._by_reason.values()
      # All-reduce ends by a vote: who stops alone leaves the others waiting.
      if options.replication != "all_reduce" or stop is not self._examples]

  @property
  def is_reached(self) -> bool:
    """Whether one of them is reached."""
    return any(stop.is_reached for stop in self._by_reason.values())

  def is_reached_at(self, step: int) -> bool:
    """Whether one is, where the global step is known to be this one."""
    return self.is_reached or bool(self._options.steps and step >= self._options.steps)

  def is_near(self, begun: float) -> bool:
    """Whether each step should look at the global step; see `stopping.StopAtStep.may_make`."""
    return any(stop.is_near(begun) for stop in self._by_reason.values())

  def may_make(self, steps: int, begun: float, faster: float = stopping.FASTER) -> bool:
    """Whether a run of so many steps cannot lead past any of them; see `stopping.StopAtStep`."""
    return all(stop.may_make(steps, begun, faster) for stop in self._by_reason.values())

  def is_last(self, examples: int) -> bool:
    """Whether this worker's part is done after a batch of so many examples."""
    return self._examples is not None and self._examples.is_reached_by(examples)

  def reason(self, was_ended: bool, left: Union[None, str, remainder.Left] = None,
             are_done: Sequence[bool] = ()) -> str:
    """Why training has ended.

    Args:
      was_ended: whether another worker ended it.
      left: what was left of this worker's data then, where that was counted.
      are_done: under --shard=dynamic, whether all ranges of the data are done: one bool.
    """
    for reason, stop in self._by_reason.items():
      if stop.is_reached:
        return reason
    if was_ended and self._options.on_uneven != STOP_ALL:
      return "training had been ended for all without this worker"
    if was_ended:
      reason = "another worker's data ended (--on_uneven=stop_all)"
      if self._options.replication == "all_reduce":
        reason = "another worker had no more to train on, or was told to stop"
      return reason if left is None else "%s; %s" % (reason, left)
    if list(are_done) == [False]:
      return "no range of the data was left"
    if list(are_done) == [True]:
      return "all ranges of the data are done, --epochs=%d times" % self._options.epochs
    if self._options.epochs:
      return "went through its data --epochs=%d times" % self._options.epochs
    return "its data ended"
