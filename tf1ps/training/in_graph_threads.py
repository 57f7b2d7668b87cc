"""The other replicas of an asynchronous in-graph job, a thread each beside the training loop.

1. Each session starts the threads (`ReplicaThreads`), except for replicas whose data have ended.
   Each thread repeats its step.
2. A replica ends with its data, or when a stop is reached. A replica that fails ends the loop: the
   next step of the loop raises the error.
3. A replica whose session breaks aborts the session. So the loop gets a new session, even if its
   own steps do not need the task that is gone.
4. When the data of the loop's own replica have ended, the loop waits in `on_end_of_data`.
   `finish_steps` ends the threads.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Dict

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.replication import ReplicaThreads
from tf1ps.training import progress
from tf1ps.training import stops as stops_lib

_BROKEN = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError)


class InGraphThreads(LifecycleHook):
  """Runs the steps of the other replicas.

  Attributes:
    steps: the number of steps that they have made together.
  """

  def __init__(self, steps: Dict[str, Any], tracker: GlobalStepTracker,
               counter: progress.ExampleCounter, stops: stops_lib.Stops):
    """Creates the hook.

    Args:
      steps: a `step.Step` by the replica's device, with `step_after`.
      tracker: of the global step.
      counter: counts the examples of all replicas.
      stops: what ends training.
    """
    self._steps, self._tracker, self._counter, self._stops = steps, tracker, counter, stops
    self._threads = ReplicaThreads(
      {name: functools.partial(self._next, name) for name in steps}, on_error=self._is_handled,
      is_last=bool)
    self._lock = threading.Lock()
    self.steps = 0

  def after_create_session(self, session, coord):
    self._threads.start(session, coord)

  def after_run(self, run_context, run_values):
    self._raise()

  def finish_steps(self, session) -> None:
    """Ends the threads, before the last checkpoint is saved; raises the error of a replica."""
    self._threads.end()
    self._raise()

  def on_end_of_data(self, session, error):
    """Waits for the others when the first replica's data have ended, until a stop is reached.

    Args:
      session: the training session, which recovers meanwhile as it does in a step.

    Raises:
      The error of a replica's step.
    """
    while not self._threads.have_ended:
      session.call_inside(self._tracker.ask)
      session.lifecycle.count()
      self._raise()
      if self._stops.is_reached or session.lifecycle.signum is not None:
        return
      time.sleep(TIMING.poll_interval)

  def _raise(self):
    if self._threads.error is not None:
      raise self._threads.error.__cause__

  def _is_handled(self, error, session, coord) -> bool:
    """Whether the loop does not have to raise an error: it is due to an end, or cured by one."""
    if self._threads.is_stopped or coord.should_stop():
      return True
    if isinstance(error, _BROKEN):
      text = str(error)
      session.abort(lambda: tf.errors.AbortedError(None, None, text))
      return True
    return False

  def _next(self, name, session, coord) -> bool:
    """Makes a step, unless the session ends; returns whether it was the last one."""
    return coord.should_stop() or self._step(name, session)

  def _step(self, name, session) -> bool:
    """Makes a step; returns whether a stop is reached."""
    step = self._steps[name]
    found = session.run(dict(op=step.train_op, loss=step.loss, step=step.step_after,
                             size=step.examples, counted=step.counted))
    with self._lock:
      self.steps += 1
    self._counter.add(int(found["size"]))
    if np.isnan(found["loss"]):
      raise tf.train.NanLossDuringTrainingError()
    return self._stops.is_reached_at(found["step"])
