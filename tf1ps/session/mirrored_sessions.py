"""Sessions of workers with mirrored variables (replication/mirrored_model.py).

They differ from sessions on the variables of a ps:

1. Each worker initialises its own variables, and only the chief restores. Each heartbeat says with
   which restore the task's session began. When the heartbeats of all tasks name the same restore,
   all tasks run the operations of `all_reduce_starts` together: they compare their graphs, and take
   the chief's values. So no session of an earlier restore remains that could take a message of this
   restore's sessions.
2. Each step needs every worker. When a worker loses its session, all other workers end their
   sessions: they learn of the loss from that worker's heartbeat, or because its process is gone.
   They wait for that worker's next process. Then all workers, including the chief, begin again from
   the last checkpoint: an update may be half applied, and another worker may be a step behind.
3. After the last checkpoint, no worker needs a step any more: a worker that is started again has
   done its part, and a chief that is started again needs no worker.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, LimitExceeded, ProbeResult, call_within
from tf1ps.compat import NEW_SESSION_ERRORS, TIMING, error_line, poll_pause
from tf1ps.replication import (
  PEER_ERRORS,
  PeerLostError,
  all_reduce_feed,
  all_reduce_starts,
  is_late_message,
  missing_tasks,
)
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED, ControlError

_HINT = "start all workers again; they go on from the last checkpoint"


def are_in(graph: tf.Graph) -> bool:
  """Whether a graph has mirrored variables."""
  return bool(all_reduce_starts(graph))


def start(session: tf.Session, membership, limit: float, check: Callable[[], None]) -> None:
  """Gives this task's variables the chief's values; all workers call this function together.

  Args:
    session: the session.
    membership: this task's membership of the run.
    limit: seconds until all other workers must have joined.
    check: called during the wait; raises when the wait must end.

  Raises:
    PeerLostError: a worker did not join; the error names each such worker.
    AbortedError: another worker has lost its session.
  """
  until, feed = time.monotonic() + limit, all_reduce_feed(session.graph, membership.run.generation)
  membership.begin_session()

  def run():
    began = time.monotonic()
    while _absent(membership):
      time.sleep(poll_pause(time.monotonic() - began))
      session.run([])  # raises the error of a session that was lost
    for operation in all_reduce_starts(session.graph):
      session.run(operation, feed)

  def goes_on():
    check()
    return time.monotonic() < until

  try:
    call_within(min(limit, TIMING.poll_interval), "starting together", run, extend=goes_on)
  except LimitExceeded as error:
    raise PeerLostError("%s did not join the start within %.0f s (--start_timeout)" % (
      ", ".join(_absent(membership)) or "another worker", limit)) from error


def _absent(membership) -> List[str]:
  """Returns the other workers whose session began with another restore than this task's session."""
  members, mine = _members(membership), membership.heartbeat.get("session")
  return [task.name for task in membership.cluster.replicas
          if task.name != membership.cluster.task.name and not (
            task.name in members and members[task.name].run
            and members[task.name].session == mine)]


def on_gone(session: BoundedSession, membership, before: Sequence[ProbeResult],
            result: ProbeResult) -> bool:
  """Ends a session that needs a task that is gone; returns whether the watch continues.

  The watch continues if no worker needs the task any more, or if the task still runs: a busy task
  may refuse a connection.
  """
  if not membership.is_over and lost(membership, before) is not None:
    membership.unless_over(lambda: session.abort(
      lambda: tf.errors.AbortedError(None, None, str(result))))
  return not session.is_aborted


def lost(membership, before: Sequence[ProbeResult]) -> Optional[BaseException]:
  """Returns an error that names all lost tasks, or None if each missing task has done its part.

  The first missing task may have ended because of another loss, so all tasks are examined. `before`
  has the probe results of the tasks that each step needs, from when the session was created.
  """
  gone = {result.task: result for result in missing_tasks(before)}
  members = _members(membership)
  ends = []
  for task in (result.task for result in before):
    member = members.get(task.name)
    state = member.state if member is not None else None
    # A restarted task can have failed only because its previous process was lost.
    is_again = task in gone and gone[task].is_up
    if state == MEMBER_FAILED and not is_again:
      ends.append("%s %s" % (task.name, member.say_end(False)))
    elif task in gone and state != MEMBER_DONE:
      ends.append("lost " + str(gone[task]))
  return PeerLostError("%s; %s" % ("; ".join(ends), _HINT)) if ends else None


def explain(membership, before: Sequence[ProbeResult], error: BaseException) -> BaseException:
  """Returns an AbortedError for a session run's error if new sessions of all workers may succeed.

  Such an error comes from a lost worker, or from a message of a worker's earlier session.
  """
  if is_late_message(error):
    return tf.errors.AbortedError(None, None, error_line(error))
  if isinstance(error, NEW_SESSION_ERRORS) or not isinstance(error, PEER_ERRORS):
    return error
  loss = lost(membership, before)
  return error if loss is None else tf.errors.AbortedError(None, None, str(loss))


def _members(membership) -> dict:
  """The last heartbeat of each task in this run, by the task's name."""
  try:
    membership.heartbeat.beat()  # to read the most recent states
  except ControlError:
    pass
  return {member.name: member for member in membership.heartbeat.members()
          if member.run in ("", membership.run_id)}
