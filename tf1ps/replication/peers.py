"""A watch over the tasks that a step waits for: it ends the step when a task is lost.

A step of an all-reduce waits for every task of its group, and an in-graph step for the workers that
compute it. TensorFlow 1.15 does not end such a wait when a task dies. So, while the context lasts:

1. The tasks are probed once per heartbeat interval. If a task is gone or lost, the present and
   later runs of the session end with an error that names the task.
2. TensorFlow may end a run before that, because a task is gone or because another task has noticed
   the loss and left. Then all tasks are probed, and the error names the tasks that are gone.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, ProbeResult, Task, TaskWatch, probe_tasks, wait_for_tasks
from tf1ps.compat import Error

# The errors that steps of the remaining tasks raise.
PEER_ERRORS = (tf.errors.UnavailableError, tf.errors.CancelledError, tf.errors.AbortedError,
               tf.errors.FailedPreconditionError, tf.errors.InternalError, tf.errors.UnknownError)


class PeerLostError(Error, RuntimeError):
  """A task that this task trains with is gone; the message names it."""


@contextlib.contextmanager
def watch_peers(session: BoundedSession, tasks: Sequence[Task],
                heartbeat_timeout: float = 30.0, timeout: float = 10.0) -> Iterator[None]:
  """Ends a session's runs when a task is gone.

  Args:
    session: the session, or the session inside of a training session.
    tasks: the other tasks, of a `Cluster`.
    heartbeat_timeout: seconds until a silent task that refuses no connection counts as lost.
    timeout: seconds that the tasks may take to start.

  Raises:
    TaskUnavailableError: a task did not start.
    PeerLostError: a task is gone; `session.run` raises it, or leaving the context does.
  """
  seen = wait_for_tasks(list(tasks), timeout)

  def on_gone(result):
    session.abort(lambda: PeerLostError("lost " + str(result)))

  def on_lost(result, silence):
    session.abort(lambda: PeerLostError("lost %s, silent for %.0f s" % (result, silence)))

  watcher = TaskWatch(seen, heartbeat_timeout, on_gone, on_lost)
  watcher.start()
  try:
    yield
  except PEER_ERRORS as error:
    gone = missing_tasks(seen)
    if not gone:
      raise
    raise PeerLostError("lost " + ", ".join(map(str, gone))) from error
  finally:
    watcher.stop()


def missing_tasks(seen: Sequence[ProbeResult]) -> List[ProbeResult]:
  """Probes tasks again; returns those that are gone, or were restarted.

  Args:
    seen: the earlier results of their probes.
  """
  missing = []
  for before, now in zip(seen, probe_tasks([result.task for result in seen])):
    if not now.is_up:
      missing.append(now)
    elif now.incarnation != before.incarnation:
      missing.append(now._replace(detail="it was started again"))
  return missing
