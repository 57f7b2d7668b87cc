"""Fetches the global step at intervals instead of at every step.

TensorFlow's hooks fetch the global step from the ps in every run, which takes a third of the time
of a small model. `GlobalStepTracker` fetches the global step in a separate session run, after the
training step, so that the value includes that step:

1. By default it fetches every `Timing.global_step_interval` seconds, and at the latest after
   `MAX_STEPS` steps.
2. It fetches sooner if another hook needs the value (`ask_within`). A stop hook needs the value
   more often near the end.

If each run returns the global step at no cost, as a synchronous update does, the tracker makes no
separate runs (`along`). In a graph without a global step the value stays 0.

Other hooks take the step from the tracker, which comes before them in the list of hooks.

A global step may be a float: `tf.get_variable("global_step", [])` makes a float. TensorFlow's
`get_global_step` refuses it; `find_global_step` does not.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, give_step_to_hooks

MAX_STEPS = 100  # steps of this task between two fetches, at most


def find_global_step(graph: Optional[tf.Graph] = None):
  """Returns the global step of a graph, None for the default graph: a scalar of any type, or None.

  The global step is the first element of TensorFlow's collection for it, else the variable
  `global_step`, else the tensor of that name.
  """
  graph = graph or tf.get_default_graph()
  steps = graph.get_collection(tf.GraphKeys.GLOBAL_STEP)
  if not steps:
    steps = [variable for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
             if variable.op.name == tf.GraphKeys.GLOBAL_STEP]
  if not steps:
    try:
      steps = [graph.get_tensor_by_name(tf.GraphKeys.GLOBAL_STEP + ":0")]
    except KeyError:
      return None
  return steps[0]


class GlobalStepTracker(tf.train.SessionRunHook):
  """Keeps a recent value of the global step, which is at most a few of this task's steps old.

  Attributes:
    value: the global step when it was last fetched; None before there is a session.
    own_steps: training steps of this task, over all sessions since the process started.
    has_step: whether the graph has a global step; known from `begin` on.
    asked: whether the global step was fetched after the run that has just ended.
    rate: global steps per step of this task, at least 1, between the last two fetches.
  """

  def __init__(self, along: Optional[tf.Tensor] = None, count_run: Callable[[], int] = lambda: 1,
               find_step: Callable = find_global_step):
    """Creates the hook; it must run before the hooks that take the step from it.

    Args:
      along: an int64 scalar, the global step at the end of each run, if every run can fetch it at
        no cost; None: the tracker fetches the step in separate runs.
      count_run: returns the number of steps of the current run, or else of the last run.
      find_step: returns the global step of the default graph, a scalar, or None.
    """
    self.value = None
    self.own_steps = 0
    self.asked = False
    self.rate = 1.0
    self._listeners: List[Callable[[int, int], None]] = []
    self._asked_at_step = 0
    self._asked_at_time = 0.0
    self._within = None
    self._tensor, self.has_step, self._find_step = None, False, find_step
    self._along, self._count_run = along, count_run

  @property
  def run_steps(self) -> int:
    """The number of steps of the current run, or else of the last run."""
    return self._count_run()

  def add_listener(self, listener: Callable[[int, int], None]) -> None:
    """Adds a callable for the global step and this task's steps, after each fetch."""
    self._listeners.append(listener)

  def begin(self):
    step = self._find_step()
    self.has_step = step is not None
    # A run of the constant still shows whether a session was lost.
    self._tensor = step if self.has_step else tf.constant(0, tf.int64)
    if self.has_step and not step.dtype.base_dtype.is_integer:
      give_step_to_hooks(tf.cast(step, tf.int64))

  def check_step(self, purpose: str) -> None:
    """Raises RuntimeError if the graph has no global step; `purpose` is what needs the step."""
    if not self.has_step:
      raise RuntimeError(
        "%s needs a global step: call tf.train.get_or_create_global_step() while the graph is "
        "built" % purpose)

  def after_create_session(self, session, coord):
    self.value = None  # a restored state may be older than the last value
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

  def add_steps(self, steps: int) -> None:
    """Counts steps of a run whose end this hook does not see."""
    self.own_steps += steps

  @property
  def name(self) -> str:
    """The name of the operation that has the global step, such as its variable."""
    return self._tensor.op.name

  def read(self, session) -> Optional[int]:
    """Fetches the global step without noting it; None in a graph without a global step."""
    return int(session.run(self._tensor)) if self.has_step else None

  def ask(self, session) -> int:
    """Fetches the global step now, and returns it."""
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
    """Limits the number of this task's steps between the last fetch and the next fetch."""
    steps = max(1, int(steps))
    self._within = steps if self._within is None else min(self._within, steps)

  def _is_due(self) -> bool:
    steps = self.own_steps - self._asked_at_step
    if self._within is not None and steps >= self._within:
      return True
    waited = time.monotonic() - self._asked_at_time
    return steps >= MAX_STEPS or waited >= TIMING.global_step_interval
