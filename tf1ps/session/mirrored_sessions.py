"""Sessions of workers with mirrored variables (replication/all_reduce.py).

They differ from sessions on the variables of a ps:

1. Each worker initialises its own variables, and only the chief restores. Then all run the
   operations of `all_reduce_starts` together: they compare their graphs, and take the chief's
   values.
2. Each step needs every worker. A lost worker ends the runs of all others by an error that names
   it.
3. The servers remember the processes of a group, so a new session cannot recover. All workers must
   be started again, and continue from the last checkpoint.
"""

from __future__ import annotations

from typing import Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LimitExceeded, ProbeResult, call_within
from tf1ps.compat import error_line
from tf1ps.replication import PEER_ERRORS, PeerLostError, all_reduce_starts, missing_tasks
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED, ControlError

_HINT = "start all workers again; they go on from the last checkpoint"


def are_in(graph: tf.Graph) -> bool:
  """Whether a graph has mirrored variables."""
  return bool(all_reduce_starts(graph))


def start(session: tf.Session, membership, limit: float) -> None:
  """Gives this task's variables the chief's values; all workers run it together.

  Raises PeerLostError, naming the workers that did not join within `limit` seconds.
  """
  def run():
    for operation in all_reduce_starts(session.graph):
      session.run(operation)

  try:
    call_within(limit, "starting together", run)
  except LimitExceeded as error:
    members = _members(membership)
    own = membership.cluster.task.name
    missing = [task.name for task in membership.cluster.replicas if task.name != own
               and (task.name not in members or not members[task.name].run)]
    raise PeerLostError("%s did not join the start within %.0f s (--start_timeout)" % (
      ", ".join(missing) or "another worker", limit)) from error


def again() -> BaseException:
  """Returns the error of a second session."""
  return PeerLostError("the session of mirrored variables has ended: " + _HINT)


def lost(membership, before: Sequence[ProbeResult]) -> Optional[BaseException]:
  """Returns an error that names all lost tasks, or None if each missing task has done its part.

  The first missing task may have ended because of another loss, so all tasks are examined. `before`
  has the probe results, at the creation of the session, of the tasks that each step needs.
  """
  gone = {one.task: one for one in missing_tasks(before)}
  members = _members(membership)
  found = []
  for task in (one.task for one in before):
    member = members.get(task.name)
    state = member.state if member is not None else None
    # A restarted task fails only because its previous process was lost.
    is_again = task in gone and gone[task].is_up
    if state == MEMBER_FAILED and not is_again:
      found.append("%s failed: %s" % (task.name, member.reason))
    elif task in gone and state != MEMBER_DONE:
      found.append("lost " + str(gone[task]))
  return PeerLostError("%s; %s" % ("; ".join(found), _HINT)) if found else None


def explain(membership, before: Sequence[ProbeResult], error: BaseException) -> BaseException:
  """Returns the error to raise for an error of a run, which may come from a lost worker."""
  if not isinstance(error, PEER_ERRORS):
    return error
  return lost(membership, before) or PeerLostError(
    "a step was ended by another worker (%s); %s" % (error_line(error), _HINT))


def _members(membership) -> dict:
  """The last heartbeat of each task in this run, by the task's name."""
  try:
    membership.heartbeat.beat()  # for the most recent states
  except ControlError:
    pass
  return {member.name: member for member in membership.heartbeat.members()
          if member.run in ("", membership.run_id)}
