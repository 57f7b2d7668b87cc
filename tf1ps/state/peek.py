"""Looks at the records and queues that a task keeps, and leaves nothing there.

TensorFlow's operations that return the handle of a table or queue create the object if it does not
exist. The older operations for reading instead take a reference to two strings, the container and
the name, and fail if there is no such object. These strings are in a temporary variable, which ends
with its session run. No operation here takes a lock of tf1ps, waits, or writes. The session of a
`Peek` ends with the `Peek`, so that the task sees no client afterwards.
"""

from __future__ import annotations

import contextlib
from typing import Dict, List, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, LimitExceeded, Task, call_within, make_small_config
from tf1ps.compat import TIMING, error_line, retry_refused_run
from tf1ps.state import containers, control, guard


class QueueSeen(NamedTuple):
  """A queue of tf1ps on a task."""

  name: str  # its shared name
  kind: str  # "FIFOQueue"
  container: str  # the container of the job; "" is the default container
  size: int
  capacity: int  # below 0: no limit


class Peek:
  """A short look at a task: a context manager."""

  def __init__(self, task: Task, limit: float):
    """Opens the session; each call takes at most `limit` seconds. The task must answer a probe."""
    self._task, self._limit = task, limit
    self._graph = tf.Graph()
    self._session = BoundedSession(
      "grpc://" + task.address, self._graph, make_small_config([task.name]),
      TIMING.run_session_close_limit)

  def __enter__(self) -> "Peek":
    return self

  def __exit__(self, *unused):
    self._session.close()

  def records(self) -> Dict[str, control.ControlRecord]:
    """Returns the task's control records, {} if it keeps none; raises ControlError."""
    with self._build():
      values = _export(containers.CONTROL, control.TABLE)
      with tf.control_dependencies([values]):
        now = tf.timestamp()
    answer = self._run([values, now])
    return {} if answer is None else control.parse(*answer)

  def queues(self, names: Sequence[str]) -> List[QueueSeen]:
    """Returns the queues in containers of jobs; raises ControlError."""
    queues = []
    for name in names:
      real = containers.real_name(name, self._task)
      with self._build():
        register = _export(real, guard.REGISTER)
      values = self._run(register)
      for thing in [] if values is None else guard.descriptions(values):
        if thing["thing"] == guard.QUEUE_KIND:
          with self._build():
            size = tf.raw_ops.QueueSize(handle=_reference(real, thing["name"]))
          size = self._run(size)
          if size is not None:
            queues.append(QueueSeen(
              thing["name"], thing["kind"], name, int(size), thing["capacity"]))
    return queues

  @contextlib.contextmanager
  def _build(self):
    with self._graph.as_default(), tf.device(self._task.name):
      yield

  def _run(self, fetches):
    """Returns the values; None if the task lacks the object."""
    try:
      return call_within(
        self._limit, "asking %s at %s" % (self._task.name, self._task.address),
        retry_refused_run, tf.Session.run, self._session, fetches)
    except tf.errors.NotFoundError:
      return None
    except (tf.errors.OpError, LimitExceeded) as error:
      self._session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
      raise control.ControlError("%s at %s does not answer: %s" % (
        self._task.name, self._task.address, error_line(error))) from error


def _reference(container: str, name: str) -> tf.Tensor:
  variable = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.string)
  return tf.raw_ops.Assign(ref=variable, value=tf.constant([container, name]))


def _export(container: str, name: str) -> tf.Tensor:
  return tf.raw_ops.LookupTableExport(
    table_handle=_reference(container, name), Tkeys=tf.int64, Tvalues=tf.string)[1]
