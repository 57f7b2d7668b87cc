"""Finds how many steps a run makes, from the times of a loop's own runs.

A run of a small step takes as long as its messages, so several steps in one run save time
(unrolling.py). How many pay depends on the model, the link and the machine. So a loop that asks
`RunLength`

1. makes single steps until their time is known;
2. adds copies of the step to its graph, for runs of at most 65 ms, as soon as what they save in the
   time that is left is twice what they cost;
3. compares: runs of several steps stay if they are faster, else single steps come back.

The first step comes as soon as without it. A loop of a few seconds gets no copies.
"""

from __future__ import annotations

import statistics
from typing import Callable, List, Optional

MOST = 16  # steps of a run
_RUN = 0.065  # seconds; stops and hooks act between runs
_SKIPPED = 10  # runs of a session, or after a change, that do not count
_RUNS, _SECONDS = 25, 1.0  # the least of both that a measurement takes
_GAIN = 0.97  # of the time of a single step: what a step in a longer run may take
# Seconds, measured with S, L, E and V50 of benchmarks/ on both TensorFlows, two cores: what a run
# takes beside its steps; and what copies cost, in all and for each operation. A third of that is
# the import, the rest is the work of the servers before the first such run.
_PER_RUN = 5e-4
_COST, _COST_OF_OP = 0.3, 4e-4
_MOST_COST = 4.0


class RunLength:
  """The number of steps of a loop's runs.

  Attributes:
    steps: the number of steps that a run should make from now on. The loop adds the copies when it
      grows, or calls `refuse`.
    is_final: whether it will not change any more.
    finding: a sentence about both times; "" before they are compared.
  """

  def __init__(self, count_ops: Callable[[], int],
               find_left: Callable[[], Optional[float]] = lambda: None,
               steps: Optional[int] = None):
    """Begins with single steps, unless `steps` fixes their number.

    Args:
      count_ops: returns the number of operations of a step.
      find_left: returns the number of steps that are left. None: not known; then the loop is taken
        to last as long again as it has lasted.
      steps: the number of steps; None: the number that makes the steps fast.
    """
    self._count_ops, self._find_left = count_ops, find_left
    self._times: List[float] = []
    self._skip, self._passed = _SKIPPED, 0.0
    self._single, self._ops = 0.0, 0  # seconds of a single step, and its operations
    self.steps, self.is_final = (1, False) if steps is None else (steps, True)
    self.finding = ""

  def restart(self) -> None:
    """Begins the measurement under way anew: there is a new session."""
    self._times, self._skip = [], _SKIPPED

  def refuse(self) -> None:
    """Notes that the step cannot be copied: all runs make one step."""
    self.steps, self.is_final = 1, True

  def note(self, seconds: float, steps: int) -> None:
    """Notes that a run of so many steps took so long."""
    self._passed += seconds
    if self.is_final or steps != self.steps:
      return
    if self._skip:
      self._skip -= 1
      return
    self._times.append(seconds)
    if len(self._times) >= _RUNS and sum(self._times) >= _SECONDS:
      median = statistics.median(self._times)
      if self.steps > 1:
        self._compare(median / self.steps)
      else:
        self._single = median
        self.steps = self._choose(median)  # 1 may become more later, where no end is known
      self.restart()

  def _choose(self, seconds) -> int:
    """Returns the number of steps of a run whose single steps take so long."""
    left = self._find_left()
    left = self._passed if left is None else left * seconds
    self._ops = self._ops or self._count_ops()
    best, gain = 1, 0.0
    for most in (2, 4, 8, MOST):
      cost = _COST + _COST_OF_OP * (most - 1) * self._ops
      saved = left / seconds * _PER_RUN * (1 - 1 / most)
      if most * seconds <= _RUN and cost <= _MOST_COST and saved - 2 * cost > gain:
        best, gain = most, saved - 2 * cost
    return best

  def _compare(self, seconds):
    self.is_final = True
    tried = self.steps
    if seconds > _GAIN * self._single:
      self.steps = 1
    self.finding = (
      "%d step%s per run from here on: %.2f ms per step in runs of %d steps, %.2f ms in runs of 1"
      % (self.steps, "s"[:self.steps > 1], 1e3 * seconds, tried, 1e3 * self._single))
