"""The other replicas of an asynchronous in-graph job, a thread each beside the training loop.

1. With each session the threads begin, but for those whose data have ended. Each repeats its step.
2. A replica ends with its data, or when a stop is reached. One that fails ends the loop, whose next
   step raises the error.
3. Where the session breaks for one of them it is aborted, so that the loop, whose own steps may not
   need that task, gets a new one.
4. The loop, when the first replica's data have ended, waits in `run_out`; `finish` ends the
   threads.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.training import progress
from tf1ps.training import stops as stops_lib

_BROKEN = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.CancelledError)


class InGraphThreads(LifecycleHook):
  """Runs the steps of the other replicas.

  Attributes:
    steps: how many they have made together.
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
    self._ended = set()
    self._threads = []
    self._stopped = threading.Event()
    self._lock = threading.Lock()
    self._error: Optional[BaseException] = None
    self.steps = 0

  def after_create_session(self, session, coord):
    self._stop()  # of a session that broke
    self._error = None
    self._stopped = stopped = threading.Event()
    self._threads = [
      threading.Thread(target=self._work, args=(name, session, coord, stopped), daemon=True,
                       name="tf1ps: replica on " + name)
      for name in self._steps if name not in self._ended]
    for thread in self._threads:
      thread.start()

  def after_run(self, run_context, run_values):
    if self._error is not None:
      raise self._error

  def finish_steps(self, session) -> None:
    """Ends the threads, before the last checkpoint is saved; raises what a last step raised."""
    self._stop()
    if self._error is not None:
      raise self._error

  def on_end_of_data(self, session, error):
    """Waits for the others when the first replica's data have ended, until a stop is reached.

    Args:
      session: the training session, which recovers meanwhile as it does in a step.

    Raises:
      What a replica's step raised.
    """
    while len(self._ended) < len(self._steps):
      session.call_inside(self._tracker.ask)
      session.lifecycle.count()
      if self._error is not None:
        raise self._error
      if self._stops.is_reached or session.lifecycle.signum is not None:
        return
      time.sleep(TIMING.poll_interval)

  def _stop(self):
    self._stopped.set()
    end = time.monotonic() + TIMING.replica_end_limit
    for thread in self._threads:
      thread.join(max(0.0, end - time.monotonic()))

  def _work(self, name, session, coord, stopped):
    try:
      while not stopped.is_set() and not coord.should_stop():
        if self._step(name, session):
          return
    except tf.errors.OutOfRangeError:
      self._ended.add(name)
    except _BROKEN as error:
      if not stopped.is_set() and not coord.should_stop():
        text = str(error)
        session.abort(lambda: tf.errors.AbortedError(None, None, text))
    except BaseException as error:
      if not stopped.is_set() and not coord.should_stop():
        self._error = error

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
