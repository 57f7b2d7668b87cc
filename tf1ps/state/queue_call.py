"""One call of a queue's `get`, `put` or `reopen`: asking again, and what an answer means."""

from __future__ import annotations

import json
import re
import time

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, call_within, task_name_of_device
from tf1ps.compat import TIMING, get_status, retry_refused_run
from tf1ps.state import guard as guard_lib
from tf1ps.state import queue_errors, queue_steps

_CLOSED = re.compile(r"Queue '[^']*' is closed")  # says TensorFlow of an enqueue


class QueueCall:
  """A call, from its first question to its last."""

  def __init__(self, queue, session, operation: str, requested: int, timeout):
    """Begins the call.

    Args:
      queue: the queue; one of `queues.py`.
      session: a session of its graph.
      operation: for errors: "get(4)".
      requested: elements.
      timeout: seconds, or None for no limit.
    """
    if timeout is not None and not timeout >= 0:
      raise ValueError("timeout must be a number of seconds, 0 or more, or None, got %r" % (
        timeout,))
    self._queue = queue
    self._guard = queue._guard
    self._steps = queue._steps
    self._session = session
    self._operation = operation
    self._requested = requested
    self._began = time.monotonic()
    self._deadline = None if timeout is None else self._began + timeout

  def run(self, fetches, feed=None):
    """Asks once; raises the `QueueError` that a failure means."""
    try:
      try:
        return run_once(self._session, fetches, feed)
      except tf.errors.InvalidArgumentError as error:
        if guard_lib.GUARD_RESET not in str(error):
          raise
        run_once(self._session, self._steps.look)  # it may be this session's first step
        return run_once(self._session, fetches, feed)
      except tf.errors.CancelledError as error:
        if not _CLOSED.search(str(error)):
          raise
        # It was closed between the look and the enqueue of one step: nothing was put in.
        return run_once(self._session, fetches, feed)
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
      meaning = self._meaning(error)
      if meaning is None:
        raise
      raise meaning from error

  def run_quick(self, put, feed):
    """Asks once by a step that fails where the queue is closed; None there: ask by another one."""
    try:
      count, = self.run(put, feed)
      return count
    except tf.errors.CancelledError as error:
      if not _CLOSED.search(str(error)):
        raise
      return None

  def pause(self, present, closed, timeout_error) -> None:
    """Waits until it is time to ask again; raises the error where that is never."""
    if closed:
      raise self._closed(present)
    pause = self._queue.poll_secs
    if self._deadline is not None:
      left = self._deadline - time.monotonic()
      if left <= 0:
        raise timeout_error("timed out", self._status(present, False))
      pause = min(pause, left)
    time.sleep(pause)

  def full(self, present) -> queue_errors.QueueFull:
    """The error of a call that does not wait and found no room."""
    return queue_errors.QueueFull("is full", self._status(present, False))

  def make_anew(self) -> None:
    """Makes the queue where it was taken away; raises RuntimeError where this cannot be done."""
    try:
      self.run(self._steps.look)
    except queue_errors.QueueReset as error:
      # 1.15 makes a queue once in a session; another session of the same server makes it again.
      target = _raw(self._session).sess_str
      if not target:
        raise RuntimeError(
          "TensorFlow 1.15 makes a queue once in a session without a server: open a new session "
          "to use %s again" % self._guard.title) from error
      call_within(TIMING.queue_make_limit, "making %s anew" % self._guard.title,
                          _make_in_another_session, self._queue.queue_ref.op,
                          self._guard.device, target)
      self.run(self._steps.look)

  def _meaning(self, error):
    """The error of ours that one of TensorFlow's means, or None."""
    if guard_lib.GUARD_RESET in str(error):
      return self._reset()
    there = run_once(self._session, self._steps.register).decode("utf-8")
    if there in ("", guard_lib.GONE):
      return self._reset() if isinstance(error, tf.errors.NotFoundError) else None
    found = guard_lib.descriptions([there.encode("utf-8")])[0]
    mine = json.loads(self._guard.description)
    differences = ["%s is %s there and %s here" % (
      key, json.dumps(found.get(key)), json.dumps(mine[key]))
      for key in mine if found.get(key) != mine[key]]
    if differences:
      return queue_errors.QueueMismatch(
        "another %s lives under the name %s in container %s: %s" % (
          self._guard.kind, self._guard.title, self._guard.container_title,
          "; ".join(differences)))
    return self._reset() if isinstance(error, tf.errors.NotFoundError) else None

  def _closed(self, present):
    why = self.run(self._steps.state)[0].decode("utf-8")
    status = self._status(present, True)
    if why == queue_steps.CANCELLED:
      return queue_errors.QueueCancelled("was cancelled", status)
    return queue_errors.QueueEnded("has ended", status)

  def _reset(self):
    return queue_errors.QueueReset(
      "container %s was reset: %s %s and what was in it are gone" % (
        self._guard.container_title, self._guard.kind, self._guard.title))

  def _status(self, present, closed):
    return queue_errors.QueueStatus(
      queue="%s %s" % (self._queue.spec.kind, self._guard.title), device=self._guard.device,
      operation=self._operation, requested=self._requested, present=int(present),
      capacity=self._queue.spec.capacity, closed=closed, elapsed=time.monotonic() - self._began)


def _make_in_another_session(op, device, target):
  """Makes the queue of an operation by a session and a graph of its own."""
  # The server itself must be among the devices; other tasks need not be there.
  own = get_status(target[len("grpc://"):], TIMING.queue_make_limit)[0]
  config = tf.ConfigProto(device_filters=sorted(filter(None, {task_name_of_device(own), device})))
  with tf.Graph().as_default() as graph:
    made, = tf.import_graph_def(
      tf.GraphDef(node=[op.node_def], versions=op.graph.graph_def_versions),
      return_elements=[op.name + ":0"], name="")
    size = tf.raw_ops.QueueSizeV2(handle=made)
  with BoundedSession(target, graph, config) as session:
    session.run(size)


def run_once(session, fetches, feed=None):
  """Runs a step of ours, without hooks where the session has some."""
  if hasattr(session, "call_inside"):  # ours, which knows the new session after a recovery
    return session.call_inside(lambda inner: retry_refused_run(inner.run, fetches, feed))
  if hasattr(session, "run_step_fn"):
    return session.run_step_fn(
      lambda step_context: retry_refused_run(step_context.session.run, fetches, feed))
  return retry_refused_run(session.run, fetches, feed)


def _raw(session):
  if hasattr(session, "run_step_fn"):
    return session.run_step_fn(lambda step_context: step_context.session)
  return session
