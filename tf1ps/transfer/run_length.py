"""Finds how many steps a run should make, from the times of a loop's own runs.

A run of a small step takes as long as its messages, so several steps in one run save time
(unrolling.py). The best number of steps depends on the model, the network and the machine. So a
loop that uses `RunLength`

1. makes single steps until their time is known;
2. adds copies of the step to its graph, for runs of at most 65 ms, as soon as the time that they
   would save in the rest of the loop is twice the time that they cost; with large variables or
   embeddings on ps for runs of at most a second, which save a part of each step of any length;
3. compares the times: runs of several steps stay if they are faster; otherwise the loop returns to
   single steps. A clear gain needs one comparison. Another result is the median of three, because
   the machine may have other work during one of them.

`RunLength` does not delay the first step. A loop of a few seconds gets no copies.
"""

from __future__ import annotations

import statistics
from typing import Callable, List, Optional, Tuple

MOST = 16  # the highest number of steps in a run
_RUN, _LONG_RUN = 0.065, 1.0  # seconds; stops and hooks act between runs
_SKIPPED = 10  # the first runs of a session that do not count; after a change it is only the first
_STEPS, _RUNS, _SECONDS = 15, 3, 1.0  # the least steps, runs and seconds of a measurement
# The most that a step in a longer run may take, relative to a single step: in the median of so many
# comparisons, or in the first.
_GAIN, _COMPARISONS, _CLEAR_GAIN = 0.97, 3, 0.8
# Seconds, measured with S, L, E and V50 of benchmarks/ on both TensorFlows with two cores: the time
# of a run in addition to its steps, and the cost of copies, in all and for each operation. A third
# of this cost is the import. The rest is the work of the servers before the first run of several
# steps.
_PER_RUN = 5e-4
_COST, _COST_OF_OP = 0.3, 4e-4
_MOST_COST = 4.0
# The part of a step that long runs save: 0.15 to 0.2 with M on links of 1 and 10 Gbit/s, 0.05 and
# 0.2 with E. A trial costs seconds, so less is enough for one.
_SAVED = 0.05


class RunLength:
  """The number of steps of a loop's runs.

  Attributes:
    steps: the number of steps that a run should make from now on: 1, or always the same larger
      number. When the number grows, the loop adds the copies, or calls `refuse`.
    is_final: whether the number will no longer change.
    finding: a sentence about the times of single steps and of longer runs; "" until it is known.
  """

  def __init__(self, count_ops: Callable[[], int],
               find_left: Callable[[], Optional[float]] = lambda: None,
               steps: Optional[int] = None,
               may_gain_in_long_runs: Callable[[], bool] = lambda: False):
    """Begins with single steps, unless `steps` fixes their number.

    Args:
      count_ops: returns the number of operations of a step.
      find_left: returns the number of steps that are left, or None if it is not known. Then the
        loop is assumed to last as long again as it has lasted.
      steps: the number of steps; None: the number that makes the steps fast.
      may_gain_in_long_runs: returns whether runs of several steps may save a part of each step
        (`unrolling.may_gain_in_long_runs`).
    """
    self._count_ops, self._find_left = count_ops, find_left
    self._may_gain_in_long_runs = may_gain_in_long_runs
    self._times: List[float] = []
    self._passed = 0.0
    self._tried = 1  # the number of steps that is compared with 1
    self._compared: List[Tuple[float, float, float]] = []  # the ratio, of which seconds of a step
    # Of a single step: its seconds, its operations, and whether longer runs may save a part of it.
    self._single, self._ops, self._may_gain = 0.0, 0, False
    self.steps, self.is_final = (1, False) if steps is None else (steps, True)
    self.finding = ""
    self.restart()

  def restart(self) -> None:
    """Restarts the current measurement, because a new session has begun."""
    self._times, self._skip = [], _SKIPPED

  def refuse(self) -> None:
    """Notes that the step cannot be copied: all runs make one step."""
    self.steps, self.is_final = 1, True

  def note(self, seconds: float, steps: int) -> None:
    """Notes that a run of `steps` steps took `seconds`."""
    self._passed += seconds
    if self.is_final or steps != self.steps:
      return
    if self._skip:
      self._skip -= 1
      return
    self._times.append(seconds)
    if len(self._times) >= max(_STEPS // steps, _RUNS) and sum(self._times) >= _SECONDS:
      median = statistics.median(self._times) / steps
      if steps > 1:
        self._compare(median)
      else:
        self._single = median
        if self._tried == 1:
          self._tried = self._choose(median)  # if no end is known, 1 may become more later
        self.steps = self._tried
      self._times, self._skip = [], 1

  def _choose(self, seconds) -> int:
    """Returns the best number of steps of a run, if a single step takes `seconds`."""
    left = self._find_left()
    left = self._passed if left is None else left * seconds
    if not self._ops:
      self._ops, self._may_gain = self._count_ops(), self._may_gain_in_long_runs()
    longest, per_run = _RUN, _PER_RUN
    if self._may_gain:
      longest, per_run = _LONG_RUN, _PER_RUN + _SAVED * seconds
    best, gain = 1, 0.0
    for most in (2, 4, 8, MOST):
      cost = _COST + _COST_OF_OP * (most - 1) * self._ops
      saved = left / seconds * per_run * (1 - 1 / most)
      if most * seconds <= longest and cost <= _MOST_COST and saved - 2 * cost > gain:
        best, gain = most, saved - 2 * cost
    return best

  def _compare(self, seconds):
    self._compared.append((seconds / self._single, seconds, self._single))
    ratio, several, single = sorted(self._compared)[len(self._compared) // 2]
    self.is_final = len(self._compared) == _COMPARISONS or ratio <= _CLEAR_GAIN
    if not self.is_final or ratio > _GAIN:
      self.steps = 1
    if self.is_final:
      self.finding = (
        "%d step%s per run from here on: %.2f ms per step in runs of %d steps, %.2f ms in runs of 1"
        % (self.steps, "s"[:self.steps > 1], 1e3 * several, self._tried, 1e3 * single))
