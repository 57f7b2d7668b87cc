"""When training stops: at a global step, or after a number of examples.

`StopAtStep` looks at the global step more often the nearer its end is. Asynchronous workers stop
one by one, each after the step that it was in, so the last global step is above the asked-for one
by less than the number of workers, as long as their speeds keep their order of magnitude between
two looks.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker

# Between two looks the others may become faster: no more than a quarter of the way at once.
_SHARE = 4.0
FASTER = 2.0  # so many times the steps of a run others may make, each, while it is made


class StopAtStep(tf.train.SessionRunHook):
  """Requests a stop when the global step has reached the last one."""

  def __init__(self, tracker: GlobalStepTracker, last_step: int, num_workers: int = 1,
               run_steps: int = 1):
    """Creates the hook.

    Args:
      tracker: the tracker, which stands before this hook.
      last_step: the global step at which the job ends, whenever it was started.
      num_workers: how many workers raise the global step.
      run_steps: the steps that a worker makes in a run, where the end is not near.
    """
    if last_step < 1:
      raise ValueError("last_step must be at least 1, got %r" % (last_step,))
    self._tracker = tracker
    self._last_step = last_step
    self._num_workers = num_workers
    self._of_runs = self._of_all(run_steps) if run_steps > 1 else 0

  @property
  def is_reached(self) -> bool:
    """Whether the end was reached, as of the tracker's last answer."""
    return self._tracker.value is not None and self._tracker.value >= self._last_step

  def is_near(self, begun: float) -> bool:
    """Whether the last step may be reached before the tracker asks again; as `may_make`."""
    return self._left(begun) <= max(4 * self._num_workers, self._of_runs)

  def may_make(self, steps: int, begun: float, faster: float = FASTER) -> bool:
    """Whether a run of so many steps cannot lead past the last one, also if all workers make one.

    With one worker that is known at each step. With several the step is that of the last answer,
    and the others have gone on since then; the nearer the end, the less they can have.

    Args:
      steps: of the run.
      begun: steps that this worker has begun since the tracker's last answer; the mean over those
        that are in flight.
      faster: how many times as fast the others may be meanwhile.
    """
    return self._left(begun) >= self._of_all(steps, faster)

  def _of_all(self, steps, faster=FASTER):
    """The steps that all workers may make while one makes a run of so many."""
    return steps if self._num_workers == 1 else faster * self._num_workers * steps

  def _left(self, begun):
    """The steps that are left at the least."""
    if self._tracker.value is None:
      return 0
    left = self._last_step - self._tracker.value
    if self._num_workers == 1 and self._tracker.rate == 1.0:
      return left - begun
    return left - _SHARE * max(self._tracker.rate, self._num_workers) * begun

  def after_create_session(self, session, coord):
    if self.is_reached:
      coord.request_stop()  # a job that had ended before makes no further step
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
      # Where `may_make` will say no, the answer must be a new one; then it says yes again.
      left -= self._of_runs if left > self._of_runs else 0
      self._tracker.ask_within(left / (_SHARE * max(self._tracker.rate, self._num_workers)))


class StopAtExamples(tf.train.SessionRunHook):
  """Requests a stop when this worker has trained on its part of the examples."""

  def __init__(self, counter, num_examples: int):
    """Creates the hook.

    Args:
      counter: a `progress.ExampleCounter`, which stands before this hook.
      num_examples: how many this worker is to train on; the last batch may go over it.
    """
    if num_examples < 1:
      raise ValueError("num_examples must be at least 1, got %r" % (num_examples,))
    self._counter = counter
    self._num_examples = num_examples

  @property
  def is_reached(self) -> bool:
    """Whether this worker has trained on its part."""
    return self.is_reached_by(0)

  def is_reached_by(self, examples: int) -> bool:
    """Whether it will have trained on its part after so many more."""
    return self._counter.examples + examples >= self._num_examples

  def is_near(self, begun: float) -> bool:
    """Whether a step has to look at the global step, which is of no use here."""
    del begun
    return False

  def may_make(self, steps: int, begun: float, faster: float = FASTER) -> bool:
    """Whether so many steps are needed, as far as no batch is larger than those so far."""
    del begun, faster
    largest = self._counter.largest
    return bool(largest) and not self.is_reached_by((steps - 1) * largest)

  def after_create_session(self, session, coord):
    if self.is_reached:
      coord.request_stop()  # an earlier process of this worker did it all

  def after_run(self, run_context, run_values):
    if self.is_reached:
      run_context.request_stop()


def part_of(total: int, index: int, count: int) -> int:
  """One worker's part of a number of examples; the parts of all workers add up to it."""
  return total // count + (1 if index < total % count else 0)
