"""The replicas that will not arrive, according to the heartbeats of the job.

A replica is lost if

1. it has sent no heartbeat within `start_timeout`, or sends heartbeats but does not join the run
   within that time;
2. it has reported that it has ended;
3. it was silent for the heartbeat timeout, while the heartbeats' control task answered steadily.

Rounds (sync_hook.py), clocks and warm-up ask `LostReplicas` about the replicas that they wait for.
"""

from __future__ import annotations

import time
from typing import Dict, List, Optional

from tf1ps.cluster import ServerRecord
from tf1ps.compat import TIMING
from tf1ps.state import ControlTable, members_of


class LostReplicas:
  """Finds lost replicas by the heartbeats of this process's job."""

  def __init__(self, record: Optional[ServerRecord], start_timeout: float):
    """Prepares the look at the heartbeats; makes no call yet.

    Args:
      record: the record of this process's server; None: no replica is ever lost.
      start_timeout: seconds that a replica may take to send a heartbeat, and then to join.
    """
    self._record, self._start_timeout = record, start_timeout
    self._began = self._read_at = time.monotonic()
    # {(name, process): when it was first seen} of the processes that have not joined.
    self._outside = {}
    self._table = None
    if record is not None:
      cluster = record.cluster
      self._table = ControlTable(record.target, cluster.task, cluster.control_task)

  def lost(self, replicas: List[int]) -> Dict[int, str]:
    """Finds the lost replicas among `replicas`; returns {index: the reason}.

    Args:
      replicas: the indices of the replicas to check.

    Raises:
      ControlError: the control task of the heartbeats did not answer.
    """
    if self._table is None or not replicas:
      return {}
    cluster = self._record.cluster
    members = {member.name: member for member in members_of(
      self._table.read(), self._record.container)}
    own = members.get(cluster.task.name)
    # After a pause of the control task, the last heartbeats of all tasks are too old.
    now = time.monotonic()
    steady = now - self._read_at < (TIMING.steady_beats - 1) * TIMING.heartbeat_interval
    self._read_at = now
    if own is None or not own.run or not steady:
      return {}
    reasons = {}
    for i in replicas:
      member = members.get(cluster.replicas[i].name) if i < cluster.num_replicas else None
      reason = self._reason(member, own.run)
      if reason:
        reasons[i] = reason
    return reasons

  def _reason(self, member, run) -> str:
    """Returns why a replica will not arrive; "" if it may."""
    if member is None or member.run not in ("", run):  # its record is of an earlier run
      waited = time.monotonic() - self._began
      if waited > self._start_timeout:
        return "has sent no heartbeat within %.0f s" % waited
      return ""
    end = member.say_end(is_lost=member.age > self._record.heartbeat_timeout)
    if not end and not member.run:
      since = self._outside.setdefault((member.name, member.process), time.monotonic())
      waited = time.monotonic() - since
      if waited > self._start_timeout:
        return "sends heartbeats, but has not joined within %.0f s" % waited
    return end

  def close(self) -> None:
    """Closes the session with the control task."""
    if self._table is not None:
      self._table.close()


def names(replicas: int, record: Optional[ServerRecord]) -> List[str]:
  """Returns the names of all replicas, for messages; `replicas` is their number."""
  tasks = record.cluster.replicas if record is not None else []
  return [tasks[i].name if i < len(tasks) else "replica %d" % i for i in range(replicas)]
