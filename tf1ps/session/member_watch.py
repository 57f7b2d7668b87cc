"""The other members of a task's job, as their heartbeats show them.

The chief keeps the last heartbeat of each worker, because the records of steps and ends disappear
with a lost ps. The chief logs one line for each worker that is lost or is back, and reads which
tasks a signal ends. The other workers log that the chief has left.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from tf1ps.cluster import ServerRecord, Task
from tf1ps.compat import LINE_TIME
from tf1ps.state import MEMBER_DONE, ControlRecord, Heartbeat, Member, members_of

_log = logging.getLogger("tf1ps")


class MemberWatch:
  """The other members of a job.

  Attributes:
    heartbeat: the heartbeat of this task, with the last heartbeats of the others.
    rolled_back: the number of global steps that were lost with a ps, as far as the chief knew them.
  """

  def __init__(self, record: ServerRecord, heartbeat: Heartbeat, state_tasks: Sequence[Task]):
    """Prepares; `record` belongs to this task's server, `state_tasks` keep the variables."""
    self._cluster, self._container, self.heartbeat = record.cluster, record.container, heartbeat
    self._state_tasks = {task.name for task in state_tasks}
    self.rolled_back = 0
    self._last_step = -1  # the last global step that the chief has heard of, before a recovery
    # The workers' last heartbeats by name, as the chief read them: (heartbeat, monotonic time).
    self._seen: Dict[str, Tuple[Member, float]] = {}
    self._steps_before: Dict[str, int] = {}  # each member's global step before the last recovery
    self._left_chief: Optional[str] = None  # the process of the chief whose end was logged
    self._on_leaving: Optional[Callable[[List[str], str], None]] = None
    self._leavers: set = set()  # the tokens of the leaving tasks that the callback has got
    self._lost_workers = LostWorkers(heartbeat.is_lost)

  def look(self, records: Dict[str, ControlRecord], run_id: str, goes_on: bool) -> None:
    """Takes the control records that the chief has read; `goes_on`: the run has not ended."""
    self._note_steps(records, run_id)
    self._note_members(records)
    self._look_for_leavers(records, run_id)
    if goes_on:
      self._lost_workers.look(self.members(run_id), run_id)

  def chief(self, records: Optional[Dict[str, ControlRecord]] = None) -> Optional[Member]:
    """Returns the chief's heartbeat, or None; without `records`, from the last beat."""
    members = self.heartbeat.members() if records is None else members_of(
      records, self._container)
    return next((m for m in members if m.name == self._cluster.chief.name), None)

  def on_leaving(self, callback: Callable[[List[str], str], None]) -> None:
    """Calls the chief's callback when a signal ends a ps or a worker of this run.

    The callback gets the tokens of the ps' requests, for `answer_leaving`, and the tasks' names.
    """
    self._on_leaving = callback

  def answer_ended(self, run_id: str,
                   note_done: Callable[[Dict[str, bool]], None] = lambda is_done: None) -> None:
    """Tells the workers that have ended that the chief knows it: each then leaves.

    Before that, `note_done` is called with whether each worker of the run is done.
    """
    seen = sorted(self._seen.items())
    if run_id:  # workers may have ended before this chief knew its run
      note_done({name: m.state == MEMBER_DONE for name, (m, _) in seen if m.run == run_id})
    heard = " ".join("%s=%s" % (name, m.process) for name, (m, _) in seen if m.has_ended)
    if heard != self.heartbeat.get("heard"):
      self.heartbeat.set(heard=heard)
      self.heartbeat.try_beat()  # a worker leaves when it reads its process in `heard`

  def offer_saves(self) -> None:
    """Announces that from here on, each ps that a signal ends may ask for a checkpoint."""
    if self._on_leaving is not None:
      self.answer_leaving([])

  def answer_leaving(self, tokens: List[str]) -> None:
    """Tells the ps of these requests that they may end, because the save is over."""
    before = self.heartbeat.get("saved_for")
    self.heartbeat.set(saved_for=" ".join([*(before or "").split(), *tokens]))
    if tokens:
      self.heartbeat.try_beat()

  def roll_back(self, step: int, left_at: int = -1) -> int:
    """Notes that the job goes back to a global step; returns the number of lost steps.

    A chief that has heard of no step yet counts from `left_at`, the step of an earlier chief, or -1
    if that step is not known.
    """
    before = max(self._last_step, self._own_step())
    if before < 0:
      before = left_at
    self._last_step = step
    # Members report their old step until they have a new session.
    self._steps_before = {m.name: m.global_step for m in self.heartbeat.members()}
    self._steps_before[self._cluster.task.name] = self.heartbeat.get("global_step")
    lost = max(0, before - step)
    self.rolled_back += lost
    return lost

  def members(self, run_id: str) -> List[Member]:
    """Returns the members of the job, with those whose heartbeats were lost with a ps."""
    members = self.heartbeat.members()
    names = {member.name for member in members}
    now = time.monotonic()
    return members + [m._replace(age=m.age + now - when)
                      for name, (m, when) in sorted(self._seen.items())
                      if name not in names and m.run == run_id]

  def _note_members(self, records: Dict[str, ControlRecord]) -> None:
    now = time.monotonic()
    for member in members_of(records, self._container):
      if member.role == "worker":
        self._seen[member.name] = (member, now)

  def _own_step(self) -> int:
    own = self.heartbeat.get("global_step")
    return -1 if own == self._steps_before.get(self._cluster.task.name) else own

  def _note_steps(self, records: Dict[str, ControlRecord], run_id: str) -> None:
    for member in members_of(records, self._container):
      if member.role == "ps" or not run_id or member.run != run_id:
        continue
      if self._steps_before.get(member.name) != member.global_step:
        self._steps_before.pop(member.name, None)
        self._last_step = max(self._last_step, member.global_step)

  def _look_for_leavers(self, records: Dict[str, ControlRecord], run_id: str) -> None:
    if self._on_leaving is None or not run_id:
      return
    tokens, names = [], []
    for member in members_of(records, None):  # a ps may know no container
      if member.role == "ps" and member.leaving and member.name in self._state_tasks:
        token = member.leaving
      elif member.role == "worker" and member.run == run_id and member.was_stopped:
        token = "%s %s" % (member.process, member.name)
      else:
        continue
      if token not in self._leavers:
        self._leavers.add(token)
        names.append(member.name)
        if member.role == "ps":
          tokens.append(token)
    if names:
      self._on_leaving(tokens, ", ".join(names))

  def look_at_chief(self, run_id: str) -> None:
    """Logs once, in another worker, that the chief has left the run, so that no task saves."""
    chief = self.chief()
    if chief is None or not run_id or chief.run != run_id:
      return
    if self._left_chief is not None and not chief.has_ended and not self.heartbeat.is_lost(chief):
      self._left_chief = None
      _log.warning("the chief %s is back: process %d on %s", chief.name, chief.pid, chief.host)
    if chief.process == self._left_chief:
      return
    end = chief.say_end(self.heartbeat.is_lost(chief))
    if not end or chief.state == MEMBER_DONE:
      return
    self._left_chief = chief.process
    _log.warning("the chief %s %s. The others train on, and no checkpoint is saved until it is "
                 "back", chief.name, end)


class LostWorkers:
  """The workers of a run that are lost now."""

  def __init__(self, is_lost: Callable[[Member], bool]):
    """Prepares; `is_lost` returns whether a member has been silent for --heartbeat_timeout."""
    self._is_lost = is_lost
    self._since: Dict[str, float] = {}  # {name: monotonic time of the last heartbeat}

  def look(self, members: List[Member], run: str) -> None:
    """Takes the last heartbeats of all tasks; `run` is the id of the run."""
    for member in members:
      if member.role != "worker" or member.run != run:
        continue
      if member.name not in self._since:
        if self._is_lost(member):
          self._since[member.name] = time.monotonic() - member.age
          _log.warning(
            "%s is lost: silent for %.0f s, since %s; process %d on %s was at global step %d. The "
            "others go on as long as their updates do not need it; start it again, or the job "
            "fails at its end", member.name, member.age,
            time.strftime(LINE_TIME, time.localtime(time.time() - member.age)), member.pid,
            member.host, member.global_step)
      elif member.has_ended:
        del self._since[member.name]
      elif not self._is_lost(member):
        _log.warning("%s is back after %.0f s: process %d on %s", member.name,
                     time.monotonic() - self._since.pop(member.name), member.pid, member.host)
