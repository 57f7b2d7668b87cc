"""A `tf.Session` that recovers, because its runs are runs of a `MonitoredSession`.

Programs with a Supervisor pass their session to `saver.save`, `start_queue_runners`,
`tensor.eval(session=...)` and `with session:`, which take a `tf.Session` but not a
MonitoredSession. `SupervisedSession` is a `tf.Session` that opens no further session:

1. A run in the thread that created the session is a run of the MonitoredSession, with its hooks,
   its count of steps, and its recovery.
2. A run in another thread is a run of the session inside the MonitoredSession. During a recovery
   such a run waits for the new session.
3. When a replica of synchronous training has left, training ends for all replicas, because a
   further update would lack that replica's gradient. The other programs count steps, so they may be
   in a step at that moment. This step changes nothing and returns the last fetched values, and
   `should_stop` returns True. A program that still makes steps after a minute gets the
   OutOfRangeError.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, RecoverableSession
from tf1ps.compat import RETRIES
from tf1ps.replication import is_end_of_replicas
from tf1ps.session import lifecycle as lifecycle_lib
from tf1ps.session import process_end

_log = logging.getLogger("tf1ps")


class SupervisedSession(tf.Session, RecoverableSession, process_end.Endable):
  """A `tf.Session` whose runs survive the loss of a ps.

  A session that the program leaves open ends with the process (process_end.py).
  """

  def __init__(self, monitored: lifecycle_lib.MonitoredSession, graph: tf.Graph,
               recovery_limit: float, request_stop: Callable[[], None]):
    """Creates the session; `Supervisor.prepare_or_wait_for_session` does it.

    Args:
      monitored: the session that makes the runs of this thread.
      graph: the graph of that session.
      recovery_limit: seconds that a run of another thread waits for a new session.
      request_stop: asks the Supervisor's threads to end; called if the end of the process ends the
        session.
    """
    # Not the constructor of tf.Session: it would open a second session on the servers.
    self._monitored, self._own_graph = monitored, graph
    self._recovery_limit, self._request_stop = recovery_limit, request_stop
    self._thread = threading.current_thread()
    self._entered = []
    self._last = None  # the fetches of the last run, and their values
    self._ended_at: Optional[float] = None  # monotonic time: another replica had ended training
    self._has_closed = False
    process_end.register(self)

  @property
  def graph(self):
    return self._own_graph

  @property
  def graph_def(self):
    return self._own_graph.as_graph_def(add_shapes=True)

  @property
  def sess_str(self):
    return self._inside().sess_str

  def should_stop(self) -> bool:
    """Whether the session was closed, its input has ended, or a signal ends the process."""
    return self._has_closed or self._ended_at is not None or self._monitored.should_stop()

  def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
    """Like `tf.Session.run`; if a ps was lost, the run is repeated in a new session."""
    self._check_open()
    if threading.current_thread() is not self._thread:
      return self._beside(lambda session: session.run(fetches, feed_dict, options, run_metadata))

    def run_inside(fetch):
      return self._monitored.run(fetch, feed_dict, options, run_metadata)

    try:
      values = run_inside(fetches)
    except tf.errors.OutOfRangeError as error:
      return self._run_after_end(fetches, run_inside, error)
    self._last = fetches, values
    return values

  def _run_after_end(self, fetches, run_inside, error):
    """Returns values for a step after another replica's end of training; raises other errors."""
    now = time.monotonic()
    if not is_end_of_replicas(error) or now - (self._ended_at or now) > self._recovery_limit:
      raise error
    if self._ended_at is None:
      self._ended_at = now
      _log.warning("another replica has left, so training has ended for all: further steps of this "
                   "program change nothing")
    before, values = self._last or (None, None)
    wanted = tf.nest.flatten(fetches)
    if type(before) is not type(fetches) or len(tf.nest.flatten(before)) != len(wanted):
      values = tf.nest.map_structure(lambda unused: None, fetches)

    def run_or_take(fetch, value):
      try:
        return run_inside(fetch)
      except tf.errors.OutOfRangeError as problem:
        if is_end_of_replicas(problem):
          return value
        raise

    return tf.nest.pack_sequence_as(fetches, [
      run_or_take(fetch, value) for fetch, value in zip(wanted, tf.nest.flatten(values))])

  def make_callable(self, fetches, feed_list=None, accept_options=False):
    """Like `tf.Session.make_callable`; each call is a `run`."""
    feeds = list(feed_list or [])

    def call(*values, **kwargs):
      if len(values) != len(feeds):
        raise TypeError("%d values are needed, got %d" % (len(feeds), len(values)))
      return self.run(fetches, dict(zip(feeds, values)) or None, **kwargs)

    return call

  def partial_run_setup(self, fetches, feeds=None):
    return self._inside().partial_run_setup(fetches, feeds)

  def partial_run(self, handle, fetches, feed_dict=None):
    return self._inside().partial_run(handle, fetches, feed_dict)

  def list_devices(self):
    return self._inside().list_devices()

  def close(self):
    """Ends this task's part: the chief waits for the others, saves, and releases the ps."""
    if self._begin_close():
      with self.graph.as_default():  # TensorFlow makes the default graph modifiable again
        self._monitored.close()

  def end(self, error: BaseException) -> None:
    """Ends this task's part because of an error."""
    if self._begin_close():
      with self.graph.as_default():
        self._monitored.__exit__(type(error), error, error.__traceback__)

  def end_with_process(self, error):
    self._request_stop()
    if error is None:
      self.close()
    else:
      self.end(error)

  def save_last(self) -> None:
    """Saves the steps since the chief's last checkpoint."""
    if not self._has_closed:
      self._monitored.save_last()

  def call_inside(self, function: Callable):
    """Calls function(session) with the session that currently makes the runs."""
    return function(self._inside())

  def __enter__(self):
    contexts = contextlib.ExitStack()
    contexts.enter_context(self.graph.as_default())
    contexts.enter_context(self.as_default())
    self._entered.append(contexts)
    return self

  def __exit__(self, kind, error, traceback):
    self._entered.pop().close()
    if error is None:
      self.close()
    else:
      self.end(error)

  def __del__(self):
    pass  # the MonitoredSession closes what it has opened

  def _inside(self) -> BoundedSession:
    self._check_open()
    session = self._monitored.lifecycle.session
    if session is None:
      raise tf.errors.AbortedError(None, None, "the session is being created again")
    return session

  def _begin_close(self) -> bool:
    """Returns whether this is the first call that closes the session."""
    if self._has_closed:
      return False
    self._has_closed = True
    process_end.forget(self)
    return True

  def _check_open(self):
    if self._has_closed:
      raise RuntimeError("Attempted to use a closed Session.")
    if threading.current_thread() is self._thread and self._monitored.should_stop():
      self._monitored.leave_after_signal()  # its hooks allow no further run

  def _beside(self, function: Callable):
    """Makes a run of another thread; during a recovery it waits for the new session."""
    pauses, deadline = RETRIES.thread.pauses(), time.monotonic() + self._recovery_limit
    while True:
      try:
        return function(self._inside())
      except RETRIES.thread.errors:
        if time.monotonic() > deadline or self.should_stop():
          raise
        time.sleep(next(pauses))
