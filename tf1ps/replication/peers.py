"""What bounds a step that waits for other tasks: a watch over them that ends the step.

A step of an all-reduce waits for every task of its group, and an in-graph step for the workers that
compute it. TensorFlow does not end such a wait where one of them dies: on 1.15 nobody hears of it,
on 2.x one or two neighbours do. So, while the context lasts, the tasks are probed once a second,
and where one is gone or lost the session's runs end, those in progress and all later ones, with an
error that names it.
"""

from __future__ import annotations

import contextlib
from typing import Iterator, Sequence

from tf1ps.cluster import readiness, view, watch
from tf1ps.cluster import session as session_lib


class PeerLostError(RuntimeError):
  """A task that this one trains with is gone; the message names it."""


@contextlib.contextmanager
def watch_peers(session: session_lib.BoundedSession, tasks: Sequence[view.Task],
                lost_after: float = 30.0, timeout: float = 10.0) -> Iterator[None]:
  """Ends a session's runs when one of these tasks is gone.

  Args:
    session: the session, or the one inside of a training session.
    tasks: the other tasks, of a `Cluster`.
    lost_after: seconds of silence until a task that does not refuse counts as lost.
    timeout: seconds that they may take to come up.

  Raises:
    readiness.TaskUnavailableError: one of them did not come up.
    PeerLostError: is what `session.run` raises once one of them is gone.
  """
  seen = readiness.wait_for_tasks(list(tasks), timeout)

  def on_gone(one):
    session.abort(lambda: PeerLostError("lost " + str(one)))

  def on_lost(one, silence):
    session.abort(lambda: PeerLostError("lost %s, silent for %.0f s" % (one, silence)))

  watcher = watch.TaskWatch(seen, lost_after, on_gone, on_lost)
  watcher.start()
  try:
    yield
  finally:
    watcher.stop()
