"""Stops training at a global step, after a number of examples, or at the end of the data.

`StopAtStep` reads the global step more often the nearer the end is. Asynchronous workers stop one
by one, each after its current step. So the last global step exceeds the requested step by less
than the number of workers, as long as their speeds keep their order of magnitude between two reads.
`Stops` makes the hooks that the options request, and gives the reason of the end.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING
from tf1ps.replication import REPEAT, STOP_ALL
from tf1ps.training import options as options_lib
from tf1ps.training.counts import Counts

# Other workers may speed up between two reads, so the next read comes after a quarter of the
# remaining steps.
_SHARE = 4.0
# While a worker makes a run, each other worker may make this many times its steps.
FASTER = 2.0


class StopAtStep(tf.train.SessionRunHook):
  """Requests a stop when the global step has reached the last step."""

  def __init__(self, counts: Counts, last_step: int, num_workers: int = 1):
    """Creates the hook; it must come after the tracker of `counts`.

    Args:
      counts: the loop's ledger.
      last_step: the global step at which the job ends, also after a restart.
      num_workers: the number of workers that raise the global step.
    """
    if last_step < 1:
      raise ValueError("last_step must be at least 1, got %r" % (last_step,))
    self._counts, self._tracker = counts, counts.tracker
    self._last_step, self._num_workers = last_step, num_workers

  @property
  def steps_left(self) -> float:
    """The number of steps that each worker has left, as of the tracker's last answer."""
    left = self._last_step - (self._tracker.value or 0)
    return left / max(self._num_workers, self._tracker.rate)

  @property
  def _of_runs(self):
    steps = self._counts.most_run_steps
    return self._of_all(steps) if steps > 1 else 0

  @property
  def is_reached(self) -> bool:
    """Whether the last step is reached, as of the tracker's last answer."""
    return self._tracker.value is not None and self._tracker.value >= self._last_step

  def is_near(self, begun: float) -> bool:
    """Whether the last step may be reached before the tracker asks again; see `may_make`."""
    return self._left(begun) <= max(4 * self._num_workers, self._of_runs)

  def may_make(self, steps: int, begun: float, faster: float = FASTER) -> bool:
    """Whether all workers may make a run of this many steps without passing the last step.

    One worker knows its global step exactly. Several workers know it as of the last answer; since
    then the other workers have made further steps, fewer the nearer the end is.

    Args:
      steps: the steps of the run.
      begun: the steps that this worker has begun since the tracker's last answer, the mean over its
        steps in flight.
      faster: the assumed speed of the other workers, as a multiple of this worker's.
    """
    return self._left(begun) >= self._of_all(steps, faster)

  def _of_all(self, steps, faster=FASTER):
    """The steps that all workers may make while one worker makes a run of `steps`."""
    return steps if self._num_workers == 1 else faster * self._num_workers * steps

  def _left(self, begun):
    """A lower bound of the remaining steps."""
    if self._tracker.value is None:
      return 0
    left = self._last_step - self._tracker.value
    if self._num_workers == 1 and self._tracker.rate == 1.0:
      return left - begun
    return left - _SHARE * max(self._tracker.rate, self._num_workers) * begun

  def after_create_session(self, session, coord):
    if self.is_reached:
      coord.request_stop()  # The job had ended: it makes no further step.
    self._plan()

  def after_run(self, run_context, run_values):
    if self._tracker.asked:
      if self.is_reached:
        run_context.request_stop()
      self._plan()

  def _plan(self):
    left = self._last_step - self._tracker.value
    if left <= 4 * self._num_workers:
      self._tracker.ask_within(1)
    else:
      # Ask again before `may_make` returns False for lack of a recent answer.
      left -= self._of_runs if left > self._of_runs else 0
      self._tracker.ask_within(left / (_SHARE * max(self._tracker.rate, self._num_workers)))


class StopAtExamples(tf.train.SessionRunHook):
  """Requests a stop when this worker has trained on its part of the examples that are left."""

  def __init__(self, counts: Counts, num_examples: int, index: int = 0, count: int = 1):
    """Creates the hook for worker `index` of `count`; it must come after the hooks that count.

    `num_examples` is the number for the whole job. The last batch may exceed this worker's part.
    """
    if num_examples < 1:
      raise ValueError("num_examples must be at least 1, got %r" % (num_examples,))
    self._counts, self._num_examples = counts, num_examples
    self._index, self._count = index, count

  @property
  def nothing_left(self) -> str:
    """Why no worker has examples left, or ""."""
    before = self._counts.examples_before
    if before < self._num_examples:
      return ""
    return "nothing was left to do: the job had trained on %d examples before (--examples=%d)" % (
      before, self._num_examples)

  @property
  def is_reached(self) -> bool:
    """Whether this worker has trained on its part."""
    return self.is_reached_by(0)

  def is_reached_by(self, examples: int) -> bool:
    """Whether this worker's part is done after this many further examples."""
    left = max(0, self._num_examples - self._counts.examples_before)
    return self._counts.examples + examples >= part_of(left, self._index, self._count)

  def may_make(self, steps: int, begun: float, faster: float = FASTER) -> bool:
    """Whether all steps of a run are needed, if no batch is larger than the largest so far."""
    del begun, faster
    largest = self._counts.largest
    return bool(largest) and not self.is_reached_by((steps - 1) * largest)

  def after_create_session(self, session, coord):
    if self.is_reached:
      coord.request_stop()  # An earlier process of this worker did its part.

  def after_run(self, run_context, run_values):
    if self.is_reached:
      run_context.request_stop()


def part_of(total: int, index: int, count: int) -> int:
  """Returns worker `index`'s part of `total` examples; the parts of `count` workers sum to it."""
  return total // count + (1 if index < total % count else 0)


class NoExamplesLeft(tf.train.SessionRunHook):
  """Requests a stop before the first step if no worker has examples left."""

  def __init__(self, stop: StopAtExamples):
    self._stop = stop

  def after_create_session(self, session, coord):
    if self._stop.nothing_left:
      coord.request_stop()


class NothingLeft(tf.train.SessionRunHook):
  """Requests a stop before the first step."""

  is_reached = True

  def after_create_session(self, session, coord):
    coord.request_stop()


class EarlyStop(tf.train.SessionRunHook):
  """Requests a stop when the evaluator has asked for the end of the run."""

  def __init__(self, read: Callable[[], str]):
    """Creates the hook; `read` returns why the evaluator asks for the end, or ""."""
    self._read, self._looked_at = read, 0.0
    self.reason = ""

  def look(self) -> str:
    """Looks for a reason now, and returns it; "" if there is none."""
    self._looked_at = time.monotonic()
    self.reason = self.reason or self._read()
    return self.reason

  @property
  def is_reached(self) -> bool:
    """Whether the evaluator asks for the end, as of the last look."""
    if not self.reason and time.monotonic() - self._looked_at >= TIMING.poll_interval:
      self.look()
    return bool(self.reason)

  def after_run(self, run_context, run_values):
    if self.is_reached:
      run_context.request_stop()


class Stops:
  """The stops that the options request.

  Attributes:
    hooks: the hooks that request a stop.
    early: the hook of early stopping; among `hooks`, unless the workers end by a vote.
  """

  def __init__(self, options: options_lib.Options, counts: Counts, index: int, count: int,
               early_stop: Callable[[], str] = lambda: ""):
    """Creates the stops of worker `index` of `count`; raises ValueError for too few examples.

    `early_stop` returns why the evaluator asks for the end, or "".
    """
    self._options, self._counts = options, counts
    self._by_reason: Dict[str, object] = {}
    self._at_step: Optional[StopAtStep] = None
    self._reached: Dict[str, bool] = {}  # at the end of the loop
    self.early = EarlyStop(early_stop)
    if options.epochs and counts.epochs_before >= options.epochs:
      self._by_reason["nothing was left to do: the job had gone through its data %d times before "
                      "(--epochs=%d)" % (counts.epochs_before, options.epochs)] = NothingLeft()
    self._examples: Optional[StopAtExamples] = None
    if options.steps:
      self._at_step = self._by_reason["reached --steps=%d" % options.steps] = StopAtStep(
        counts, options.steps, 1 if options.is_synchronous else count * options.steps_in_flight)
    if options.examples:
      if options.examples < count:
        raise ValueError("--examples=%d, but each of the %d workers needs an example: give %d or "
                         "more" % (options.examples, count, count))
      if options.replication == "in_graph":
        index, count = 0, 1  # the chief counts for all
      self._examples = StopAtExamples(counts, options.examples, index, count)
      self._by_reason["trained on its part of --examples=%d" % options.examples] = self._examples
    self.hooks: List[tf.train.SessionRunHook] = list(self._by_reason.values())
    if options.replication == "all_reduce" and self._examples is not None:
      # All-reduce ends by a vote: a worker that stops alone would leave the others waiting.
      self.hooks[-1] = NoExamplesLeft(self._examples)
    if options.replication != "all_reduce":  # under all-reduce, the request becomes a vote
      self.hooks.append(self.early)

  def find_steps_left(self) -> Optional[float]:
    """Returns the number of steps that this worker has left; None: not known."""
    return None if self._at_step is None else self._at_step.steps_left

  @property
  def is_reached(self) -> bool:
    """Whether a stop is reached."""
    return self.early.is_reached or any(stop.is_reached for stop in self._by_reason.values())

  def end_loop(self) -> None:
    """Notes which stops are reached: the job may go back to a checkpoint when the loop is over."""
    self._reached = {reason: stop.is_reached for reason, stop in self._by_reason.items()}

  @property
  def was_reached(self) -> bool:
    """Whether a stop is reached, or was reached at the end of the loop."""
    return self.is_reached or any(self._reached.values())

  @property
  def has_gone_back(self) -> bool:
    """Whether a stop was reached at the end of the loop, but a restored step lies before it."""
    return any(self._reached.values()) and not self.is_reached

  def is_reached_at(self, step: int) -> bool:
    """Whether a stop is reached if this is the global step."""
    return self.is_reached or bool(self._options.steps and step >= self._options.steps)

  def is_near(self, begun: float) -> bool:
    """Whether each step should read the global step; see `StopAtStep.may_make`."""
    return self._at_step is not None and self._at_step.is_near(begun)

  def may_make(self, steps: int, begun: float, faster: float = FASTER) -> bool:
    """Whether a run of this many steps passes no stop; see `StopAtStep.may_make`."""
    return not self.is_reached and all(
      stop.may_make(steps, begun, faster) for stop in self._by_reason.values())

  def say_short(self, step: int, examples: int) -> str:
    """Returns a warning if the data ended before the goal, or "".

    Call it when all workers have ended, unless a hook of the program has ended training.

    Args:
      step: the last global step.
      examples: the examples that the job has trained on, in all its runs.
    """
    options = self._options
    short = [(made, name) for made, name in ((step, "steps"), (examples, "examples"))
             if (getattr(options, name) or 0) > made]
    if not short or options.epochs or self.early.reason or self.was_reached:
      return ""
    made, name = short[0]
    return ("the training data ended after %d of --%s=%d. Let input_fn repeat them in mode 'train' "
            "(dataset.repeat()), or give fewer %s" % (made, name, getattr(options, name), name))

  def is_last(self, examples: int) -> bool:
    """Whether this worker's part is done after a batch of this many examples."""
    return self._examples is not None and self._examples.is_reached_by(examples)

  def reason(self, are_done: Sequence[bool] = (), all_went_through: bool = False) -> str:
    """Returns why training has ended.

    Args:
      are_done: [whether all ranges of the data are done] under --shard=dynamic, else [].
      all_went_through: under --on_uneven=repeat, whether all workers went through their data.
    """
    if self.early.look():
      return self.early.reason
    for reason, stop in self._by_reason.items():
      if stop.is_reached:
        return stop is self._examples and stop.nothing_left or reason
      if self._reached.get(reason):
        return "%s, and went back to step %d when the loop had ended" % (
          reason, self._counts.tracker.value)
    was_ended, left = self._counts.was_ended, self._counts.left
    if was_ended and all_went_through:
      return "all workers went through their data (--on_uneven=repeat)"
    if was_ended and self._options.on_uneven == REPEAT:
      return "another worker ended training for all (--on_uneven=repeat)"
    if was_ended and self._options.on_uneven != STOP_ALL:
      return "training had already ended for all workers"
    if was_ended:
      reason = "another worker's data ended (--on_uneven=stop_all)"
      if self._options.replication == "all_reduce":
        reason = "another worker finished its part, was stopped by a hook or received a signal"
      return reason if left is None else "%s; %s" % (reason, left)
    if list(are_done) == [False]:
      return "no range of the data was left"
    if list(are_done) == [True]:
      return "all ranges of the data are done, --epochs=%d times" % self._options.epochs
    if self._options.epochs:
      return "went through its data --epochs=%d times" % self._options.epochs
    return "its data ended"
