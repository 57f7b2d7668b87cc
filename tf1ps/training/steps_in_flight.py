"""Several steps of one worker at the same time (`--steps_in_flight`).

While one step waits for what travels, another computes. The training loop makes steps as ever; each
of the others in flight has a thread beside it, on the same session, that repeats the same step. So
a worker is as stale as that many workers would be, and its gradients' ages say so.

1. A thread learns of the end from the loop, which asks for the global step now and then. Near the
   end each step brings the global step along, and its thread ends by itself: the last step is
   passed by less than there are steps in flight in the job.
2. The end of the data ends each thread; the loop waits for them.
3. What must not be looked at while a batch is drawn, as the position of the input, is looked at
   when no step is in flight (`quiet`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING
from tf1ps.training import execution as execution_lib
from tf1ps.training import in_graph_threads, outcome


class StepsInFlight(in_graph_threads.InGraphThreads):
  """Runs the steps beside those of the loop; stands behind the hooks that restore the input.

  Attributes:
    steps: how many they have made together.
  """

  def __init__(self, fetches: execution_lib.Fetches, execution: execution_lib.Execution,
               tracker, counter, stops, count: int,
               note_drawn: Optional[Callable[[int], None]] = None):
    """Creates the hook.

    Args:
      fetches: of the step.
      execution: decides on the steps of each run.
      tracker: of the global step.
      counter: of the examples.
      stops: what ends training.
      count: the steps in flight, those of the loop included.
      note_drawn: called with the steps of each run, before its batches are drawn; or None.
    """
    super().__init__(
      {"slot %d" % slot: slot for slot in range(1, count)}, tracker, counter, stops)
    self._fetches, self._execution, self._note_drawn = fetches, execution, note_drawn
    global_step = tf.train.get_global_step()
    with tf.control_dependencies([fetches.fetch("op", 1)]), tf.get_default_graph().colocate_with(
        global_step.op):
      self._step_after = tf.identity(global_step.read_value(), name="step_after")
    self._calm = threading.Condition()
    self._in_flight = self._quiet = 0

  @contextlib.contextmanager
  def quiet(self):
    """A context in which no step of these threads is in flight; tells whether that is so."""
    until = time.monotonic() + TIMING.steps_end_limit
    with self._calm:
      self._quiet += 1
      while self._in_flight and time.monotonic() < until:
        self._calm.wait(TIMING.fast_poll_interval)
      is_quiet = not self._in_flight
    try:
      yield is_quiet
    finally:
      with self._calm:
        self._quiet -= 1
        self._calm.notify_all()

  def _step(self, name, session):
    with self._calm:
      if self._quiet:
        self._calm.wait(TIMING.fast_poll_interval)
        return False
      self._in_flight += 1
    try:
      return self._run(self._steps[name], session)
    finally:
      with self._calm:
        self._in_flight -= 1
        self._calm.notify_all()

  def _run(self, slot, session):
    execution, steps = self._execution, self._execution.plan()
    feed = self._fetches.feed(steps, slot)
    fetches = {name: self._fetches.fetch(name, steps)
               for name in ("op", "loss", "size", "taken", "counted")}
    if steps == 1 and execution.is_near_end:
      fetches["step"] = self._step_after
    if self._note_drawn is not None:
      self._note_drawn(steps)
    try:
      found = session.run({name: what for name, what in fetches.items() if what is not None},
                          feed or None)
    except tf.errors.OutOfRangeError:
      self._count(execution.count_done(session, feed))
      raise
    execution.note_made(steps)
    self._count(steps)
    self._counter.note(found["size"], found.get("taken", True))
    if np.isnan(found["loss"]).any():
      raise outcome.NanLossError(self._tracker.ask(session), self._tracker.own_steps + self.steps)
    return self._stops.is_reached_at(int(found.get("step", 0)))

  def _count(self, steps):
    with self._lock:
      self.steps += steps
