"""A call of a method that waits for a queue: its requests, its pauses, its errors."""

from __future__ import annotations

import json
import re
import threading
import time
import weakref
from typing import Callable, List, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  BoundedSession,
  LimitExceeded,
  RecoverableSession,
  call_within,
  task_name_of_device,
)
from tf1ps.compat import (
  TIMING,
  error_causes,
  failed_assertions,
  get_status,
  retry_refused_run,
)
from tf1ps.state import guard as guard_lib
from tf1ps.state import queue_errors, queue_steps

_CLOSED = re.compile(r"\w+ '[^']*' is closed")  # the beginning of TensorFlow's sentence
_MONITORED = (tf.train.MonitoredSession, tf.train.SingularMonitoredSession)
# What may happen later to a request that the call no longer waits for.
_LATE = {"get": "its elements may have been taken and lost",
         "put": "its elements may have been put in"}
# The calls of this process that have paused. A call leaves the set after it has returned.
_waiting: "weakref.WeakSet[QueueCall]" = weakref.WeakSet()
_waiting_lock = threading.Lock()


class Waiting(NamedTuple):
  """A call that waits for a queue."""

  name: str  # the name of the queue
  device: str  # the device of the queue's task
  call: str  # such as "get(4)"
  seconds: float


def waiting_calls() -> List[Waiting]:
  """Returns the calls of this process that wait at this moment, the longest first."""
  now = time.monotonic()
  with _waiting_lock:
    calls = list(_waiting)
  waiting = [
    Waiting(call._guard.title, call._guard.device, call._operation, round(now - call._began, 1))
    for call in calls if now - call._paused_at < 1.0 + 2 * call._queue.poll_secs]
  return sorted(waiting, key=lambda each: -each.seconds)


class QueueCall:
  """A call, from its first request to its result."""

  def __init__(self, queue, session, operation: str, requested: int, timeout):
    """Starts the clock of the call.

    Args:
      queue: the queue.
      session: a session of its graph.
      operation: the call's name in errors: "get(4)".
      requested: the number of elements.
      timeout: seconds, or None for no limit.

    Raises:
      ValueError: the timeout is not a number, or is below 0.
    """
    if timeout is not None and not timeout >= 0:
      raise ValueError("timeout must be a number of seconds, 0 or more, or None, got %r" % (
        timeout,))
    self._queue = queue
    self._guard = queue._guard
    self._steps = queue._steps
    self._session, self._operation, self._requested = session, operation, requested
    self._began = time.monotonic()
    self._timeout = timeout
    self._deadline = None if timeout is None else self._began + timeout

  def run(self, fetches, feed=None):
    """Runs a step; raises the `QueueError` that describes a failure."""
    try:
      return self._run_step(fetches, feed)
    except tf.errors.CancelledError as error:
      if not _is_closed(error):
        raise
    # Another client closed the queue between the step's look and its enqueue: it enqueued nothing.
    return self._run_step(fetches, feed)

  def run_quick(self, put, feed):
    """Runs a step that fails on a closed queue; returns None if it fails, else its count."""
    try:
      count, = self._run_step(put, feed)
      return count
    except tf.errors.CancelledError as error:
      if not _is_closed(error):
        raise
      return None

  def pause(self, present, closed, timeout_error) -> None:
    """Waits until the next request.

    Args:
      present: the number of elements that the last request saw.
      closed: whether the queue is closed.
      timeout_error: the class of the error after the timeout.

    Raises:
      QueueEnded: the queue is closed.
      timeout_error: the call has timed out.
    """
    if closed:
      raise self._closed(present)
    pause = self._queue.poll_secs
    if self._deadline is not None:
      left = self._deadline - time.monotonic()
      if left <= 0:
        raise timeout_error("timed out", self._status(present, False))
      pause = min(pause, left)
    self._paused_at = time.monotonic()
    with _waiting_lock:
      _waiting.add(self)
    time.sleep(pause)

  def recreate(self) -> None:
    """Creates the queue if it does not exist; raises RuntimeError if that is impossible."""
    try:
      self.run(self._steps.look)
    except queue_errors.QueueReset as error:
      # TensorFlow 1.15 creates a queue only once per session; another session on the same server
      # creates it again.
      target = _raw(self._session).sess_str
      if not target:
        raise RuntimeError(
          "TensorFlow 1.15 makes a queue once in a session without a server. Open a new session "
          "to use %s again." % self._guard.title) from error
      call_within(TIMING.queue_make_limit, "making %s again" % self._guard.title,
                  _make_in_another_session, self._queue.queue_ref.op, self._guard.device, target)
      self.run(self._steps.look)

  def _run_step(self, fetches, feed=None):
    for is_last in (False, True):
      try:
        return self._run_once(fetches, feed, self._greet)
      except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        described = self._describe(error)
        if described is not None:
          raise described from error
        if is_last or self._guard.label.was_reset not in failed_assertions(error):
          raise
        # Meanwhile another thread has reopened the queue in this session.
        self._guard.greeted.clear()
    raise AssertionError("a step neither ended nor failed")

  def _run_once(self, fetches, feed=None, prepare=None):
    return run_once(self._session, fetches, feed, self._deadline, self._unanswered, prepare)

  def _greet(self, session):
    """Runs a session's first step, because most steps may not be the first step of a session."""
    if session not in self._guard.greeted:
      retry_refused_run(session.run, self._steps.look)
      self._guard.greeted.add(session)

  def _unanswered(self):
    what = "%s with timeout=%g on %s %s at %s" % (
      self._operation, round(self._timeout, 3), self._queue.spec.kind, self._guard.title,
      self._guard.device or "the session's default device")
    return what, _LATE.get(self._operation.partition("(")[0], "it may still be carried out")

  def _describe(self, error):
    """Returns the `QueueError` for an error of a step, or None.

    The entries of the register and of the session decide, because TensorFlow's text also has the
    errors of earlier steps.
    """
    try:
      there, seen = self._run_once(self._steps.entries)
    except tf.errors.NotFoundError:
      return self._reset()  # the reset removed the register while this run read it
    if there == guard_lib.GONE.encode() or seen not in (b"", there):
      return self._reset()
    for registered in guard_lib.descriptions([there]):
      here = json.loads(self._guard.label.description)
      differences = ["%s is %s there and %s here" % (
        key, json.dumps(registered.get(key)), json.dumps(here[key]))
        for key in here if registered.get(key) != here[key]]
      if differences:
        return queue_errors.QueueMismatch(
          "another %s lives under the name %s in container %s: %s" % (
            self._guard.kind, self._guard.title, self._guard.label.container_title,
            "; ".join(differences)))
    return self._reset() if isinstance(error, tf.errors.NotFoundError) else None

  def _closed(self, present):
    reason = self.run(self._steps.state)[0].decode("utf-8")
    status = self._status(present, True)
    if reason == queue_steps.CANCELLED:
      return queue_errors.QueueCancelled("was cancelled", status)
    return queue_errors.QueueEnded("has ended", status)

  def _reset(self):
    return queue_errors.QueueReset(
      "container %s was reset: %s %s and its elements are lost" % (
        self._guard.label.container_title, self._guard.kind, self._guard.title))

  def _status(self, present, closed):
    return queue_errors.QueueView(
      queue="%s %s" % (self._queue.spec.kind, self._guard.title), device=self._guard.device,
      operation=self._operation, requested=self._requested, present=int(present),
      capacity=self._queue.spec.capacity, closed=closed, elapsed=time.monotonic() - self._began)


def _make_in_another_session(op, device, target):
  """Creates the queue of an operation, in a separate session and graph."""
  # The server's own task must be among the devices; other tasks may be down.
  own = get_status(target[len("grpc://"):], TIMING.queue_make_limit)[0]
  config = tf.ConfigProto(device_filters=sorted(filter(None, {task_name_of_device(own), device})))
  with tf.Graph().as_default() as graph:
    made, = tf.import_graph_def(
      tf.GraphDef(node=[op.node_def], versions=op.graph.graph_def_versions),
      return_elements=[op.name + ":0"], name="")
    size = tf.raw_ops.QueueSizeV2(handle=made)
  with BoundedSession(target, graph, config) as session:
    session.run(size)


def run_once(session, fetches, feed=None, deadline: Optional[float] = None,
             describe: Optional[Callable[[], Tuple[str, str]]] = None,
             prepare: Optional[Callable[[tf.Session], None]] = None):
  """Runs fetches without the session's hooks.

  Args:
    session: a `tf.Session` or a `tf.train.MonitoredSession`.
    fetches, feed: as for `tf.Session.run`.
    deadline: the end of the caller's timeout, by `time.monotonic`; None: no limit. It does not
      limit the recovery of a monitored session.
    describe: returns, for the error, the name of the call and the effect of a run that ends later.
    prepare: called before the run, with the session that makes the run.

  Raises:
    QueueUnanswered: the servers did not answer within the deadline and a margin. The run may still
      be carried out.
  """
  def run_now(inner):
    if prepare is not None:
      prepare(inner)
    return retry_refused_run(inner.run, fetches, feed)

  def run(inner):
    if deadline is None:
      return run_now(inner)
    limit = max(0.0, deadline - time.monotonic()) + TIMING.answer_limit
    try:
      return call_within(limit, "a run", run_now, inner)
    except LimitExceeded as error:
      what, late = describe()
      raise queue_errors.QueueUnanswered(
        "%s: a request had no answer for %.1f s, and %s. Check whether the server runs and can be "
        "reached." % (what, limit, late)) from error

  if isinstance(session, RecoverableSession):
    return session.call_inside(run)
  if isinstance(session, _MONITORED):
    return session.run_step_fn(lambda step_context: run(step_context.session))
  return run(session)


def _is_closed(error: tf.errors.CancelledError) -> bool:
  """Whether a queue was closed during an enqueue; the end of a session has the same error type."""
  return any(map(_CLOSED.match, error_causes(error)))


def _raw(session):
  if isinstance(session, _MONITORED):
    return session.run_step_fn(lambda step_context: step_context.session)
  return session
