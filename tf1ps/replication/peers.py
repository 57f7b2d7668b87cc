"""What bounds a step that waits for other tasks: a watch over them that ends the step.

A step of an all-reduce waits for every task of its group, and an in-graph step for the workers that
compute it. TensorFlow does not end such a wait where one of them dies: on 1.15 nobody hears of it,
on 2.x one or two neighbours do. So, while the context lasts:

1. The tasks are probed once a second; where one is gone or lost the session's runs end, those in
   progress and all later ones, with an error that names it.
2. Where TensorFlow ends a run before that, because a task is gone or because another one that
   noticed it has left, all are looked at, and whoever is not there any more is named.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, ProbeResult, Task, TaskWatch, probe_tasks, wait_for_tasks
from tf1ps.compat import Error

# What the steps of those that are left end with.
PEER_ERRORS = (tf.errors.UnavailableError, tf.errors.CancelledError, tf.errors.AbortedError,
          tf.errors.FailedPreconditionError, tf.errors.InternalError, tf.errors.UnknownError)


class PeerLostError(Error, RuntimeError):
  """A task that this one trains with is gone; the message names it."""


@contextlib.contextmanager
def watch_peers(session: BoundedSession, tasks: Sequence[Task],
                heartbeat_timeout: float = 30.0, timeout: float = 10.0) -> Iterator[None]:
  """Ends a session's runs when one of these tasks is gone.

  Args:
    session: the session, or the one inside of a training session.
    tasks: the other tasks, of a `Cluster`.
    heartbeat_timeout: seconds of silence until a task that does not refuse counts as lost.
    timeout: seconds that they may take to come up.

  Raises:
    readiness.TaskUnavailableError: one of them did not come up.
    PeerLostError: one of them is gone; `session.run` raises it, or leaving the context does.
  """
  seen = wait_for_tasks(list(tasks), timeout)

  def on_gone(one):
    session.abort(lambda: PeerLostError("lost " + str(one)))

  def on_lost(one, silence):
    session.abort(lambda: PeerLostError("lost %s, silent for %.0f s" % (one, silence)))

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
  """Looks at tasks again; returns those that are not there any more, or were started again.

  Args:
    seen: what was seen of them before.
  """
  found = []
  for before, now in zip(seen, probe_tasks([one.task for one in seen])):
    if not now.is_up:
      found.append(now)
    elif now.incarnation != before.incarnation:
      found.append(now._replace(detail="it was started again"))
  return found
