"""Which replicas will not come, as the heartbeats of the job say.

A replica is lost that

1. has not been heard of within `start_timeout`, or beats but has not joined the run within it;
2. has ended, by its own report;
3. was silent for `heartbeat_timeout` seconds, while the keeper of the heartbeats answered steadily.
"""

from __future__ import annotations

import time
from typing import Dict, List, Optional

from tf1ps.cluster import ServerRecord
from tf1ps.compat import TIMING
from tf1ps.state import ControlTable, members_of


class LostReplicas:
  """Who is lost, as the heartbeats of this process's job say."""

  def __init__(self, record: Optional[ServerRecord], start_timeout: float):
    """Prepares; makes no call yet.

    Args:
      record: of this process's server; None: nobody is ever lost.
      start_timeout: seconds that a replica may take to come, and then to join.
    """
    self._record = record
    self._start_timeout = start_timeout
    self._began = self._read_at = time.monotonic()
    self._outside = {}  # since when a process beats that has not joined, by name, host and pid
    self._table = None
    if record is not None:
      cluster = record.cluster
      self._table = ControlTable(record.target, cluster.task, cluster.control_task)

  def lost(self, replicas: List[int]) -> Dict[int, str]:
    """Finds those of some replicas who will not come.

    Args:
      replicas: their indices.

    Returns:
      Why, by index.

    Raises:
      control.ControlError: the keeper of the heartbeats did not answer.
    """
    if self._table is None or not replicas:
      return {}
    cluster = self._record.cluster
    members = {member.name: member for member in members_of(
      self._table.read(), self._record.container)}
    own = members.get(cluster.task.name)
    # Where the keeper was held up, everybody's last beat is older than it should be.
    now = time.monotonic()
    steady = now - self._read_at < (TIMING.steady_beats - 1) * TIMING.heartbeat_interval
    self._read_at = now
    if own is None or not own.run or not steady:
      return {}
    found = {}
    for i in replicas:
      member = members.get(cluster.replicas[i].name) if i < cluster.num_replicas else None
      reason = self._reason(member, own.run)
      if reason:
        found[i] = reason
    return found

  def _reason(self, member, run) -> str:
    """Why a replica will not come; "" where it may."""
    if member is None or member.run not in ("", run):  # what it left in an earlier run says nothing
      waited = time.monotonic() - self._began
      return "has not come within %.0f s" % waited if waited > self._start_timeout else ""
    if member.has_ended:
      return "has ended (%s%s)" % (member.state, member.reason and ": " + member.reason)
    if member.age > self._record.heartbeat_timeout:
      return "is lost: silent for %.0f s" % member.age
    if not member.run:
      since = self._outside.setdefault((member.name, member.host, member.pid), time.monotonic())
      waited = time.monotonic() - since
      if waited > self._start_timeout:
        return "is there, but has not joined within %.0f s" % waited
    return ""

  def close(self) -> None:
    """Closes the session with the keeper."""
    if self._table is not None:
      self._table.close()


def names(replicas: int, record: Optional[ServerRecord]) -> List[str]:
  """What so many replicas are called in a message."""
  tasks = record.cluster.replicas if record is not None else []
  return [tasks[i].name if i < len(tasks) else "replica %d" % i for i in range(replicas)]
