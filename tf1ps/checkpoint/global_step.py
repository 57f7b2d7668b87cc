"""The global step, asked for now and then instead of at every step.

Stock hooks fetch the global step from the ps in every run: on a small model that is a third of the
time. `GlobalStepTracker` asks in a run of its own, after the training step, so that the answer
includes it:

1. by default when about `Timing.global_step_interval` seconds have passed, at the latest every
   `MAX_STEPS` steps;
2. sooner where another hook has to know (`ask_within`): a stop hook looks more often near the end.

Where each run can bring the step along for nothing, as that of a synchronous update does, the
tracker never asks (`come_along`).

The other hooks of this room take the step from the tracker, which stands before them in the list.
"""

from __future__ import annotations

import time
from typing import Callable, List

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING

MAX_STEPS = 100  # own steps


class GlobalStepTracker(tf.train.SessionRunHook):
  """Knows the global step as of a few of this task's steps ago.

  Attributes:
    value: the global step when it was last asked for; None before the session is there.
    own_steps: training steps of the runs that this session's hooks have seen, over recoveries too.
    run_steps: steps of the run that is being made, or was made last; whoever makes several says so.
    asked: whether the global step was asked for after the run that has just ended.
    rate: global steps for each own step, at least 1, as of the last two answers.
  """

  def __init__(self):
    self.value = None
    self.own_steps = 0
    self.run_steps = 1
    self.asked = False
    self.rate = 1.0
    self._listeners: List[Callable[[int, int], None]] = []
    self._asked_at_step = 0
    self._asked_at_time = 0.0
    self._within = None
    self._tensor = None
    self._along = None

  def come_along(self, tensor) -> None:
    """Has every run bring the global step as of its end; every run must be one of training.

    Args:
      tensor: an int64 scalar.
    """
    self._along = tensor

  def add_listener(self, listener: Callable[[int, int], None]) -> None:
    """Has a callable called with the global step and the own steps after each answer."""
    self._listeners.append(listener)

  def begin(self):
    self._tensor = tf.train.get_global_step()
    if self._tensor is None:
      raise RuntimeError(
        "there is no global step: call tf.train.get_or_create_global_step() while the graph is "
        "built")

  def after_create_session(self, session, coord):
    self.value = None  # the state may be older than what was last seen
    self.ask(session)

  def before_run(self, run_context):
    return None if self._along is None else tf.train.SessionRunArgs(self._along)

  def after_run(self, run_context, run_values):
    self.own_steps += self.run_steps
    self.asked = False
    if self._along is not None:
      self._note(int(run_values.results))
    elif self._is_due():
      self.ask(run_context.session)

  def ask(self, session) -> int:
    """Asks for the global step now."""
    return self._note(int(session.run(self._tensor)))

  def _note(self, value) -> int:
    steps = self.own_steps - self._asked_at_step
    if self.value is not None and steps > 0:
      self.rate = max(1.0, (value - self.value) / steps)
    self.value, self.asked, self._within = value, True, None
    self._asked_at_step, self._asked_at_time = self.own_steps, time.monotonic()
    for listener in self._listeners:
      listener(value, self.own_steps)
    return value

  def ask_within(self, steps: int) -> None:
    """Has the next question asked after at most so many own steps from the last answer."""
    steps = max(1, int(steps))
    self._within = steps if self._within is None else min(self._within, steps)

  def _is_due(self) -> bool:
    steps = self.own_steps - self._asked_at_step
    if self._within is not None and steps >= self._within:
      return True
    waited = time.monotonic() - self._asked_at_time
    return steps >= MAX_STEPS or waited >= TIMING.global_step_interval
