"""Finds how many steps a run of the training loop makes, under `--steps_per_execution=auto`.

`transfer.RunLength` decides from the times between the ends of the loop's runs.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import changeable
from tf1ps.training import execution
from tf1ps.transfer import RunLength

_log = logging.getLogger("tf1ps")


class AutoSteps(tf.train.SessionRunHook):
  """Adds copies of the step to the graph if they save time; it is the last of the loop's hooks."""

  def __init__(self, fetches: execution.Fetches, find_left: Callable[[], Optional[float]]):
    """Creates the hook.

    Args:
      fetches: the fetches of the loop, which make one step per run at first.
      find_left: returns the number of steps that this worker has left, or None if it is unknown.
    """
    self._fetches, self._last = fetches, None
    self._length = RunLength(
      fetches.count_ops, find_left, may_gain_in_long_runs=fetches.may_gain_in_long_runs)

  @property
  def has_ended(self) -> bool:
    """Whether the number of steps per run no longer changes."""
    return self._length.is_final

  def after_create_session(self, session, coord):
    self._last = None
    self._length.restart()

  def after_run(self, run_context, run_values):
    if self.has_ended:
      return
    now, before = time.perf_counter(), self._last
    self._last = now
    if before is None:
      return
    self._length.note(now - before, self._fetches.steps)
    if self._length.steps > self._fetches.most:
      self._grow(self._length.steps)
    self._fetches.most = self._length.steps
    if self._length.finding:
      _log.info("%s (--steps_per_execution)", self._length.finding)

  def _grow(self, most):
    began = time.perf_counter()
    try:
      with changeable(self._fetches.graph), self._fetches.graph.as_default():
        self._fetches.grow(most)
    except ValueError as error:
      self._length.refuse()
      _log.debug("each run makes one step: %s", error)
      return
    self._last = None  # the time until the next run's end includes the building of the copies
    _log.debug("copies for runs of %d steps took %.2f s", most, time.perf_counter() - began)
