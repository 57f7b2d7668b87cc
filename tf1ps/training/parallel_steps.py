"""Threads that make steps beside the training loop, in the loop's session.

`InGraphThreads` runs the other replicas of an asynchronous in-graph job, one thread per replica:

1. Each session starts the threads (`ReplicaThreads`), except for replicas whose data have ended.
   Each thread repeats its step.
2. A thread ends at the end of its replica's data, or when a stop is reached. If its step fails, the
   next step of the loop raises the error.
3. If a thread finds the session broken, it aborts the session. The loop then gets a new session,
   even if the loop's own steps do not need the lost task.
4. When the data of the loop's own replica have ended, the loop waits in `on_end_of_data`.
   `finish_steps` ends the threads.

`StepsInFlight` runs several steps of one worker at the same time (`--overlap=N`). One step
computes while another waits for the network. Each further step in flight has a thread, which
repeats the loop's step. The worker's gradients are as stale as the gradients of N workers, and
their measured ages show this.

1. The loop asks for the global step now and then, and the threads learn of the end from the answer.
   Near the end each step returns the global step, and its thread ends by itself. The job therefore
   passes its last step by less than its number of steps in flight.
2. Each thread ends at the end of the data; the loop waits for all threads.
3. The position of the input cannot be read while a thread draws a batch. `quiet` is a context in
   which the threads have no step in flight.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import Any, Callable, Dict, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.monitoring import StepTracer
from tf1ps.replication import ReplicaThreads
from tf1ps.training import execution as execution_lib
from tf1ps.training import outcome
from tf1ps.training import stops as stops_lib
from tf1ps.training.counts import Counts

_BROKEN = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError)


class InGraphThreads(LifecycleHook):
  """Runs the steps of the other replicas."""

  def __init__(self, steps: Dict[str, Any], counts: Counts, stops: stops_lib.Stops,
               tracer: Optional[StepTracer] = None):
    """Creates the hook.

    `steps` has a `step.Step` with `step_after` for each replica, by the replica's device. `tracer`
    traces their steps beside those of the loop.
    """
    self._steps, self._counts, self._stops, self._tracer = steps, counts, stops, tracer
    self._threads = ReplicaThreads(
      {name: functools.partial(self._next, name) for name in steps}, on_error=self._is_handled,
      is_last=bool)
    self._is_over = False

  def after_create_session(self, session, coord):
    if not self._is_over:  # if a ps was lost at the end, nothing would end new threads
      self._threads.start(session, coord)

  def after_run(self, run_context, run_values):
    self._raise()

  def finish_steps(self, session) -> None:
    """Ends the threads before the last checkpoint is saved; raises the error of a thread's step."""
    self._is_over = True
    self._threads.end()
    self._raise()

  def on_end_of_data(self, session, error):
    """Waits for the threads, until a stop is reached; raises the error of a thread's step.

    The session recovers during the wait as it does in a step.
    """
    while not self._threads.have_ended:
      session.call_inside(self._counts.tracker.ask)
      session.lifecycle.count()
      self._raise()
      if self._stops.is_reached or session.lifecycle.signum is not None:
        return
      time.sleep(TIMING.poll_interval)

  def _raise(self):
    if self._threads.error is not None:
      raise self._threads.error.__cause__

  def _is_handled(self, error, session, coord) -> bool:
    """Whether the loop ignores an error: the end caused it, or a new session recovers from it."""
    if self._threads.is_stopped or coord.should_stop():
      return True
    if isinstance(error, _BROKEN):
      text = str(error)
      session.abort(lambda: tf.errors.AbortedError(None, None, text))
      return True
    return False

  def _next(self, name, session, coord) -> bool:
    """Makes a step, unless the session ends; returns whether it was the last step."""
    return coord.should_stop() or self._step(name, session)

  def _run(self, session, fetches, feed=None, steps: int = 1):
    if self._tracer is None:
      return session.run(fetches, feed)
    return self._tracer.run(session, fetches, feed, steps)

  def _step(self, name, session) -> bool:
    """Makes a step; returns whether a stop is reached."""
    step = self._steps[name]
    values = self._run(session, dict(op=step.train_op, loss=step.loss, step=step.step_after,
                                     size=step.examples, counted=step.counted))
    self._counts.add_beside(1)
    self._counts.add_examples(int(values["size"]))
    if np.isnan(values["loss"]):
      raise tf.train.NanLossDuringTrainingError()
    return self._stops.is_reached_at(values["step"])


class StepsInFlight(InGraphThreads):
  """Runs steps besides the loop's; the hook must come after the hooks that restore the input."""

  def __init__(self, execution: execution_lib.Execution, counts: Counts, stops, count: int,
               note_drawn: Optional[Callable[[int], None]] = None,
               tracer: Optional[StepTracer] = None):
    """Creates the hook for `count` steps in flight, including the loop's.

    Each run calls `note_drawn`, if given, with its number of steps before it draws its batches.
    """
    super().__init__({"slot %d" % slot: slot for slot in range(1, count)}, counts, stops, tracer)
    self._fetches, self._execution, self._note_drawn = counts.fetches, execution, note_drawn
    global_step = tf.train.get_global_step()
    with tf.control_dependencies([counts.fetches.fetch("op", 1)]), (
        tf.get_default_graph().colocate_with(global_step.op)):
      self._step_after = tf.identity(global_step.read_value(), name="step_after")
    self._calm = threading.Condition()
    self._in_flight = self._quiet = 0

  @contextlib.contextmanager
  def quiet(self):
    """A context without steps of these threads; its value is False if a step is still running."""
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
      return self._make(self._steps[name], session)
    finally:
      with self._calm:
        self._in_flight -= 1
        self._calm.notify_all()

  def _make(self, slot, session):
    execution, steps = self._execution, self._execution.plan()
    feed = self._fetches.feed(steps, slot)
    fetches = {name: self._fetches.fetch(name, steps)
               for name in ("op", "loss", "size", "taken", "counted")}
    if steps == 1 and execution.is_near_end:
      fetches["step"] = self._step_after
    if self._note_drawn is not None:
      self._note_drawn(steps)
    try:
      values = self._run(
        session, {name: fetch for name, fetch in fetches.items() if fetch is not None},
        feed or None, steps)
    except tf.errors.OutOfRangeError:
      self._counts.add_beside(execution.count_done(session, feed))
      raise
    execution.note_made(steps)
    self._counts.add_beside(steps)
    self._counts.note_batches(values["size"], values.get("taken", True))
    if np.isnan(values["loss"]).any():
      raise outcome.NanLossError(self._counts.tracker.ask(session), self._counts.steps)
    return self._stops.is_reached_at(int(values.get("step", 0)))
