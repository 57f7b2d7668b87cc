"""A task's membership of a run, from its first heartbeat to its last.

A `Membership` holds what this task shares with the other tasks of its job: the heartbeat, the
records of the run (`RunRecords`), and the id of the run. The session creator calls it:

  the chief        `adopt` (does the live state belong to this run?), `begin_initialisation`,
                   `mark_initialised`
  another worker   `find_run`, until it returns the initialised run of a living chief; then `join`
  both             `report`; then the chief calls `release`
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Callable, Dict, List, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  LimitExceeded,
  ServerRecord,
  TaskHeldError,
  awaited_at_exit,
  call_within,
  probe_task,
  record_of_task,
  this_process,
)
from tf1ps.compat import RETRIES, TIMING, Error
from tf1ps.session import container_check, lost_workers, reset_watch, run_directory
from tf1ps.state import (
  CLUSTER_RECORD,
  MEMBER_DONE,
  MEMBER_FAILED,
  MEMBER_TRAINING,
  PROGRAM_RECORD,
  RUN_ENDED,
  RUN_FAILED,
  RUN_RUNNING,
  ControlError,
  ControlRecord,
  Heartbeat,
  Member,
  RunFile,
  RunRecord,
  clear_container,
  clear_run_state,
  containers_of,
  find_run,
  members_of,
  new_run_id,
  table_for,
  write_run,
)

_log = logging.getLogger("tf1ps")
_done: set = set()  # the ids of the runs in which this process has done its part: a process global
ENDED_BY_SIGNAL = "ended by signal "  # the reason of a task that a signal ends begins with it


class ClusterMismatchError(Error, RuntimeError):
  """Another task of the job was started with a different cluster."""


class RunRecords:
  """The record of the run on each task that keeps variables of the job.

  These tasks are the holders: the ps, or the chief where there is no ps. The chief writes the
  record on all of them, one after the other. A run is whole if all holders have the same record.

  Attributes:
    holders: the tasks that keep the job's variables.
  """

  def __init__(self, record: ServerRecord):
    """Prepares the access and makes no call. `record` belongs to the server of this task."""
    cluster = record.cluster
    self.holders = cluster.ps or [cluster.control_task]
    self._container = record.container
    self._control_task = cluster.control_task
    self._tables = {task: table_for(record, task) for task in self.holders}

  def read(self, task) -> Dict[str, ControlRecord]:
    """Returns all control records of one holder; raises ControlError."""
    return self._tables[task].read()

  def runs(self) -> List[Optional[RunRecord]]:
    """Returns the record on each holder, None where there is none; raises ControlError."""
    return [find_run(self.read(task), self._container) for task in self.holders]

  def write(self, run: RunRecord) -> None:
    """Writes the record on each holder; raises ControlError."""
    for table in self._tables.values():
      write_run(table, self._container, run)

  def write_where_possible(self, run: RunRecord, patience: float = 0.0) -> None:
    """Writes the record, and continues if a holder does not answer.

    A holder that is silent, as a stopped one is, has `patience` seconds to come back.
    """
    until = time.monotonic() + patience
    # The task with the heartbeats comes last, because live tasks read the record there.
    for task in sorted(self.holders, key=lambda task: task == self._control_task):
      tries = 0
      while True:
        try:
          write_run(self._tables[task], self._container, run)
          break
        except ControlError as error:  # it may have written: the next try shows it
          tries += 1
          if tries < RETRIES.release.tries or (
              time.monotonic() < until and probe_task(task).is_silent):
            continue
          _log.warning("%s may still be waiting for the end of the job: %s", task.name, error)
          break

  def clusters(self) -> Dict[object, dict]:
    """Returns each ps's description of the cluster. A server that is not ours has none."""
    until = time.monotonic() + TIMING.cluster_record_limit
    found_on = {}
    for task in self.holders:
      found = self.read(task).get(CLUSTER_RECORD)
      here = record_of_task(task)  # it writes its description in `join`, which may never come
      while found is None and here is None and task.job == "ps" and time.monotonic() < until:
        time.sleep(TIMING.fast_poll_interval)
        found = self.read(task).get(CLUSTER_RECORD)
      if found is not None:
        found_on[task] = found.value
      elif here is not None:
        found_on[task] = here.cluster.to_json()
    return found_on

  def may_wait_for_queues(self, task) -> bool:
    """Whether a holder's program may run sessions of its own: it is not in `join`, as far as seen.

    Raises ControlError.
    """
    if record_of_task(task) is not None:
      return False  # this process: its chief begins a run
    found = self.read(task)
    return CLUSTER_RECORD not in found or (
      PROGRAM_RECORD in found and found[PROGRAM_RECORD].value["has_sessions"])

  def close(self) -> None:
    """Closes the sessions, within the limit of a call."""
    for table in self._tables.values():
      table.close()


def is_preempted(member: Member) -> bool:
  """Whether a signal has ended a task, which reported it."""
  return member.state == MEMBER_FAILED and member.reason.startswith(ENDED_BY_SIGNAL)


class Membership:
  """This task's membership of a run.

  Attributes:
    cluster: the cluster as this task knows it.
    holders: the tasks that keep the variables of the job: the ps, or the chief without ps.
    heartbeat: the `state.Heartbeat` of this task.
    recovery_timeout: seconds that a ps may stay away.
    recovery_flag: the flag that sets it.
    resets: the `ResetWatch` of the container of the job.
    run_id: the id of the run, or "" before it is known.
    is_over: whether this task needs no other worker for a step any more.
    goal: what was asked for, as flags; the chief writes it into the status file of an ended run.
    rolled_back: the global steps that were lost with ps, as far as the chief knew of them.
  """

  def __init__(self, record: ServerRecord, checkpoint_dir: Optional[str] = None,
               heartbeat_timeout: Optional[float] = None):
    """Prepares the membership; `start` starts the heartbeat.

    Args:
      record: the record of this task's server.
      checkpoint_dir: the directory of the run's status file, which the chief writes, or None.
      heartbeat_timeout: seconds of silence until a task is lost; None takes the server's value.
    """
    self.record = record
    self.cluster = record.cluster
    self.heartbeat_timeout = (
      record.heartbeat_timeout if heartbeat_timeout is None else heartbeat_timeout)
    self.recovery_timeout = record.recovery_timeout or self.heartbeat_timeout
    self.recovery_flag = (
      "--recovery_timeout" if record.recovery_timeout else "--heartbeat_timeout")
    self.is_chief = self.cluster.is_chief
    self.run_id, self.is_over, self.goal, self.rolled_back = "", False, "", 0
    self._last_step = -1  # the last global step that the chief has heard of, before a recovery
    # The last heartbeats of the workers, by name, as the chief read them: (heartbeat, when).
    self._seen: Dict[str, Tuple[Member, float]] = {}
    self._steps_before: Dict[str, int] = {}  # those that members said before the last recovery
    self._keeps: List[object] = []  # the holders that keep this run's whole state
    self._lost: List[object] = []  # those that have none
    self._stop_reason = ""
    self._is_proven = record.is_proven
    self._records = RunRecords(record)
    self.holders = self._records.holders
    self._status = RunFile(checkpoint_dir) if checkpoint_dir else None
    self._directory = None
    if checkpoint_dir and self.is_chief:
      self._directory = run_directory.RunDirectory(checkpoint_dir, self.heartbeat_timeout)
    self._current: Optional[RunRecord] = None
    self._left_chief: Optional[int] = None  # the process id of one whose end was logged
    self._used: List[object] = []  # the holders that have had a run in this container
    self._on_new_run: Optional[Callable[[str], None]] = None
    self._on_leaving: Optional[Callable[[List[str], str], None]] = None
    self._leavers: set = set()  # the tokens of ps, and the processes of workers, that were noted
    self._at_stop: List[Callable[[], None]] = []
    self._lock = threading.Lock()
    self.heartbeat = Heartbeat(
      table_for(record, self.cluster.control_task), self.cluster.task,
      "chief" if self.is_chief else "worker", record.container, self.heartbeat_timeout,
      self._look, self._beat_directory)
    self._lost_workers = lost_workers.LostWorkers(self.heartbeat.is_lost)
    if self.is_chief:
      self.heartbeat.set(heard="")
    self.resets = reset_watch.ResetWatch(
      self.heartbeat, lambda: self._records.read(self.cluster.control_task), record.container)

  def start(self) -> None:
    """Announces the run in its directory, and starts the heartbeat. A second call does nothing.

    A process that may not be the one which the others reach sends none before the path check.
    """
    if self._directory is not None:
      self._directory.open()
    if self._is_proven:
      self.heartbeat.start()

  def prove(self) -> None:
    """Starts the heartbeat if it has waited for the path check."""
    if not self._is_proven:
      self._is_proven = True
      self.heartbeat.start()

  def check_holder(self) -> None:
    """Raises TaskHeldError if another process sends heartbeats of this task. The holders answer."""
    age = math.inf
    while not self._is_proven:
      records = self._records.read(self.cluster.control_task)
      others = [m for m in containers_of(records, self.cluster.task).values()
                if not m.has_ended and m.age < TIMING.alive_within]
      if not others:
        return
      last = min(others, key=lambda member: member.age)
      if last.age < age < math.inf:  # it was sent after the look before
        raise TaskHeldError(
          "%s is already process %d on %s; this one is %s. Is --task_index given twice?" % (
            self.cluster.task.name, last.pid, last.host, this_process()))
      age = last.age
      time.sleep(TIMING.fast_poll_interval)

  def at_stop(self, callback: Callable[[], None]) -> None:
    """Calls a callback after the last report and the last heartbeat."""
    self._at_stop.append(callback)

  def stop(self) -> None:
    """Stops the heartbeat and closes the sessions, and does not wait for a silent task."""
    def stop():
      with awaited_at_exit():
        self.heartbeat.stop()
        self._records.close()
        for callback in self._at_stop:
          callback()

    try:
      call_within(TIMING.thread_end_limit, "ending the heartbeat", stop)
    except LimitExceeded as error:
      _log.info("%s", error)

  def on_new_run(self, callback: Optional[Callable[[str], None]]) -> None:
    """Calls a callback when another run, or a reset, takes the state of this session away."""
    self.resets.begin(callback)
    self._on_new_run = callback

  def on_leaving(self, callback: Callable[[List[str], str], None]) -> None:
    """Calls the chief's callback, once each, when a signal ends a ps or a worker of this run.

    It gets the tokens of the ps' requests, for `answer_leaving`, and the names of the tasks.
    """
    self._on_leaving = callback

  def answer_leaving(self, tokens: List[str]) -> None:
    """Tells ps that they may end: what could be saved is saved."""
    before = self.heartbeat.get("saved_for")
    self.heartbeat.set(saved_for=" ".join([*(before or "").split(), *tokens]))
    if tokens:
      self._beat()

  @property
  def examples_before(self) -> int:
    """Returns the examples that an earlier process of this task trained on in this run."""
    previous = self.heartbeat.previous
    if previous is None or not self.run_id or previous.run != self.run_id:
      return 0
    return previous.examples

  def check_same_run(self) -> None:
    """Raises AbortedError if the chief has begun to restore the run since this task joined it.

    A session that was opened before this call keeps to the processes of the ps that it has found.
    """
    current = self._current._replace(ended=True, failed=False)
    found = self._records.runs()
    if any(f is None or f._replace(ended=True, failed=False) != current for f in found):
      raise tf.errors.AbortedError(None, None, "the chief restores the run, or has restored it")

  @property
  def was_done(self) -> bool:
    """Whether an earlier process of this task has done the task's part in this run."""
    previous = self.heartbeat.previous
    return (not self.is_chief and previous is not None and previous.state == MEMBER_DONE
            and previous.run == self.run_id and self.run_id not in _done)

  def repeat_report(self) -> None:
    """Reports the end of the earlier process again, which this one's heartbeats have replaced.

    If the run has ended already, nobody is left to hear it.
    """
    previous = self.heartbeat.previous
    if previous is None:
      return
    self.heartbeat.set(step=previous.step, examples=previous.examples,
                       global_step=previous.global_step)
    self.report(MEMBER_DONE, previous.reason)

  def compare_clusters(self) -> None:
    """Raises ClusterMismatchError if a ps was started with a different cluster."""
    for task, jobs in self._records.clusters().items():
      self.compare_with(task, jobs)

  def compare_with(self, task, jobs: dict) -> None:
    """Raises ClusterMismatchError if another task has a different description of the cluster."""
    found = self.cluster.differences(jobs)
    if found:
      raise ClusterMismatchError("%s at %s was started with a different cluster than %s: %s" % (
        task.name, task.address, self.cluster.task.name, "; ".join(found)))

  def find_run(self) -> Optional[RunRecord]:
    """Returns the run to join, once its live chief has initialised it everywhere; else None."""
    records = self._records.read(self.cluster.control_task)
    container_check.check_worker(records, self.cluster.chief, self.record.container)
    chief = self._chief_among(members_of(records, self.record.container))
    found = find_run(records, self.record.container)
    if found is None or found.ended or not found.initialised:
      return None
    if chief is None or chief.run != found.id or chief.has_ended:
      return None
    if chief.age > self.heartbeat_timeout:
      return None
    return found if all(other == found for other in self._records.runs()) else None

  def find_chief(self) -> Optional[Member]:
    """Returns the last heartbeat of the chief, read now, if it lives and has not ended."""
    try:
      records = self._records.read(self.cluster.control_task)
    except ControlError:
      return None
    chief = self._chief_among(members_of(records, self.record.container))
    if chief is None or chief.has_ended or chief.age > self.heartbeat_timeout:
      return None
    return chief

  def chief_member(self) -> Optional[Member]:
    """Returns the last heartbeat of the chief, or None."""
    return self._chief_among(self.heartbeat.members())

  def _chief_among(self, members) -> Optional[Member]:
    found = [member for member in members if member.name == self.cluster.chief.name]
    return found[0] if found else None

  def join(self, found: RunRecord) -> None:
    """Makes this task a member of a run."""
    with self._lock:
      self.run_id, self._current = found.id, found
    self.heartbeat.set(run=found.id, state=MEMBER_TRAINING)
    self._beat()  # a chief that dies now and returns must find that its run is alive
    _log.info("joined run %s", found.id)

  def adopt(self, signature: List[list],
            interrupted: Callable[[], None] = lambda: None) -> bool:
    """Returns whether the holders keep the live, whole state of this run.

    Sets `run_id` if the run continues, even if a holder has lost its variables. The state of a
    graph with another signature does not belong to this run. Raises ControlError.
    """
    container_check.check_chief(
      self._records.read(self.cluster.control_task), self.cluster.task, self.record.container)
    found = self._records.runs()
    if self._directory is not None and not self.run_id:
      ids = [f.id for f in found if f is not None and not f.ended]
      self._directory.await_free(ids.__contains__, interrupted)
    self._used = [task for task, run in zip(self.holders, found) if run is not None]
    self._keeps, self._lost = [], []
    known = self.run_id or (
      self._id_of_living(found) if self._directory is None else self._directory.run_id)
    mine = [f for f in found if f is not None and f.id == known and not f.ended
            and (not f.initialised or f.signature == signature)]
    if self.run_id and not any(found):
      self._lost = list(self.holders)
      return False  # all holders are lost and back: this process goes on with its run
    if not known or not mine:
      self.run_id = ""
      if any(f is not None for f in found):
        _log.info("the ps hold old state of another run; this chief clears it")
      return False
    self.run_id = known
    with self._lock:
      self._current = max(mine, key=lambda f: f.writes)
    self._keeps = [task for task, f in zip(self.holders, found)
                   if f == self._current and f.initialised]
    self._lost = [task for task, f in zip(self.holders, found) if f is None]
    return len(self._keeps) == len(self.holders)

  @property
  def lost_part(self) -> List[object]:
    """The holders that lost their state, if all others keep theirs whole; set by `adopt`."""
    is_part = self._keeps and len(self._keeps) + len(self._lost) == len(self.holders)
    return list(self._lost) if is_part else []

  def roll_back(self, step: int) -> int:
    """Notes that the job goes back to a global step; returns the steps that are lost."""
    before = max(self._last_step, self._own_step())
    if before < 0 and self._directory is not None:
      before = self._directory.step_left
    self._last_step = step
    # Members say the old step until they have a new session.
    self._steps_before = {m.name: m.global_step for m in self.heartbeat.members()}
    self._steps_before[self.cluster.task.name] = self.heartbeat.get("global_step")
    lost = max(0, before - step)
    self.rolled_back += lost
    return lost

  def begin_initialisation(self, graph=None) -> None:
    """Marks the run as not initialised on the holders, and clears the state of other runs.

    Where no run has been, everything stays. Queues stay where a ps's own program may wait for one;
    there only the state of `graph` is cleared. Raises ControlError or ContainerError.
    """
    goes_on = bool(self.run_id)
    if not goes_on:
      self.run_id = new_run_id()
    before = self._current.writes if goes_on and self._current is not None else 0
    self._write(self._new_record(before + 1))
    if not goes_on:
      spared = [task for task in self._used if self._records.may_wait_for_queues(task)]
      clear_container(self.record.container, [task for task in self._used if task not in spared])
      if graph is not None:
        clear_run_state(self.record, graph, spared)
    self._write_file(RUN_RUNNING)

  def claim_run(self) -> None:
    """Begins a run that has only an end, for a chief whose program initialises by itself."""
    self.run_id = new_run_id()
    self._current = self._new_record(1)

  def _new_record(self, writes: int) -> RunRecord:
    return RunRecord(
      id=self.run_id, initialised=False, ended=False, failed=False, jobs=self.cluster.to_json(),
      signature=[], writes=writes)

  def mark_initialised(self, signature: List[list]) -> None:
    """Marks the run as initialised, which the other workers wait for."""
    if not self._current.initialised:
      self._write(self._current._replace(initialised=True, signature=signature))
    self.heartbeat.set(run=self.run_id, state=MEMBER_TRAINING)
    if self._on_leaving is not None:
      self.answer_leaving([])  # from here on a ps that must leave may ask for a checkpoint
    self._beat()
    self._write_file(RUN_RUNNING)

  def release(self, failed: bool = False, reason: str = "") -> None:
    """Marks the run as ended on every holder, which releases the ps; `reason` is of a failure."""
    if self._current is None:
      return
    record = self._current._replace(ended=True, failed=failed)
    self._records.write_where_possible(record, 0.0 if failed else self.recovery_timeout)
    self._current = record
    self._write_file(RUN_FAILED if failed else RUN_ENDED, reason)

  def report(self, state: str, reason: str, limit: float = TIMING.report_limit) -> bool:
    """Reports the end of this task within `limit` seconds; returns whether the report arrived.

    A chief that has failed writes so into the run's status file first.
    """
    if state == MEMBER_FAILED and self._directory is not None:
      self._directory.write_failure(self.run_id, self.heartbeat.get("global_step"), reason)
    if not self._is_proven:
      return False  # the report would be about another process
    if state == MEMBER_DONE:
      _done.add(self.run_id)
    try:
      call_within(limit + 0.2, "reporting this task's end", self.heartbeat.report, state, reason,
                  limit, lambda: state == MEMBER_FAILED or self._is_heard())
      return True
    except (ControlError, LimitExceeded) as error:
      _log.warning("the other tasks could not be notified that this task is %s%s: %s",
                   state, " (%s)" % reason if reason else "", error)
      return False

  def _is_heard(self) -> bool:
    """Whether the chief has read the report of this worker's end, or will not read it."""
    chief = self.chief_member()
    if self.is_chief or chief is None:
      return self.is_chief  # a ps that was restarted knows no chief yet
    mine = "%s=%d" % (self.cluster.task.name, self.heartbeat.get("pid"))
    return (chief.heard is None or mine in chief.heard.split()
            or chief.has_ended or chief.run != self.run_id or chief.age > TIMING.alive_within)

  def _beat(self):
    try:
      self.heartbeat.beat()
    except ControlError:
      pass

  def _write(self, record: RunRecord) -> None:
    with self._lock:
      self._current = record
    self._records.write(record)

  def _id_of_living(self, found) -> str:
    """Returns the run of which another task was a member a moment ago."""
    self.heartbeat.beat()  # a member without an answer now is not dead yet
    ids = {f.id for f in found if f is not None and f.initialised and not f.ended}
    for member in self.heartbeat.members():
      if member.role == "worker" and member.run in ids and not member.has_ended \
          and member.age < self.heartbeat_timeout:
        return member.run
    return ""

  def _look(self, records: Dict[str, ControlRecord]) -> None:
    """After each heartbeat."""
    with self._lock:
      current = self._current
    callback = self._on_new_run
    self.resets.look(records)
    if self.is_chief:
      self._note_steps(records)
      self._note_members(records)
      self._look_for_leavers(records)
      if self.run_id and current is not None and not current.ended:
        self._lost_workers.look(self.members(), self.run_id)
      return
    found = find_run(records, self.record.container)
    if callback is not None and None not in (found, current) and found.id != current.id:
      callback("the chief began another run (%s)" % found.id)
    self._watch_chief()

  def members(self) -> List[Member]:
    """Returns the members of the job, with those whose heartbeats were lost with a ps."""
    found = self.heartbeat.members()
    names = {member.name for member in found}
    now = time.monotonic()
    return found + [m._replace(age=m.age + now - when)
                    for name, (m, when) in sorted(self._seen.items())
                    if name not in names and m.run == self.run_id]

  def _note_members(self, records: Dict[str, ControlRecord]) -> None:
    before, now = self.heartbeat.get("heard"), time.monotonic()
    for member in members_of(records, self.record.container):
      if member.role == "worker":
        self._seen[member.name] = (member, now)
    heard = " ".join("%s=%d" % (name, m.pid) for name, (m, _) in sorted(self._seen.items())
                     if m.has_ended)
    if heard != before:
      self.heartbeat.set(heard=heard)
      self._beat()  # they leave when they know

  def _own_step(self) -> int:
    own = self.heartbeat.get("global_step")
    return -1 if own == self._steps_before.get(self.cluster.task.name) else own

  def _note_steps(self, records: Dict[str, ControlRecord]) -> None:
    for member in members_of(records, self.record.container):
      if member.role == "ps" or not self.run_id or member.run != self.run_id:
        continue
      if self._steps_before.get(member.name) != member.global_step:
        self._steps_before.pop(member.name, None)
        self._last_step = max(self._last_step, member.global_step)

  def _look_for_leavers(self, records: Dict[str, ControlRecord]) -> None:
    if self._on_leaving is None or not self.run_id:
      return
    holders = {task.name for task in self.holders}
    tokens, names = [], []
    for member in members_of(records, None):  # a ps may know no container
      if member.role == "ps" and member.leaving and member.name in holders:
        token = member.leaving
      elif member.role == "worker" and member.run == self.run_id and is_preempted(member):
        token = "%s %d %s" % (member.host, member.pid, member.name)
      else:
        continue
      if token not in self._leavers:
        self._leavers.add(token)
        names.append(member.name)
        if member.role == "ps":
          tokens.append(token)
    if names:
      self._on_leaving(tokens, ", ".join(names))

  def _watch_chief(self) -> None:
    """Says once that a chief has left in the middle of the run: nobody saves then."""
    chief = self.chief_member()
    if self.is_over or chief is None or not self.run_id or chief.run != self.run_id:
      return
    if self._left_chief is not None and not chief.has_ended and not self.heartbeat.is_lost(chief):
      self._left_chief = None
      _log.warning("the chief %s is back: process %d on %s", chief.name, chief.pid, chief.host)
    if chief.pid == self._left_chief:
      return
    if chief.state == MEMBER_FAILED:
      how = "has failed (%s)" % chief.reason
    elif self.heartbeat.is_lost(chief):
      how = "is lost: silent for %.0f s" % chief.age
    else:
      return
    self._left_chief = chief.pid
    _log.warning("the chief %s %s. The others train on, and no checkpoint is saved until it is "
                 "back", chief.name, how)

  @property
  def stop_reason(self) -> str:
    """Why the evaluator asks all workers to end, or ""; the chief's heartbeats tell the others."""
    if self.is_chief:
      return self._stop_reason
    chief = self.chief_member()
    return chief.stop if chief is not None and chief.run == self.run_id else ""

  def has_ended_before(self) -> bool:
    """Whether the status file says that a run of this goal has ended."""
    status = self._status.read() if self._status is not None and self.goal else None
    return status is not None and status.state == RUN_ENDED and status.goal == self.goal

  def _beat_directory(self) -> None:
    if self._directory is None:
      return
    self._directory.beat(self.run_id, self.heartbeat.get("global_step"))
    reason = "" if self._stop_reason else self._directory.stop_request(self.run_id)
    if reason:
      _log.info("the evaluator asks for the end of the run: %s", reason)
      self.heartbeat.set(stop=reason)
      self._beat()  # before the chief itself ends: the others shall know why
      self._stop_reason = reason

  def _write_file(self, state: str, reason: str = "") -> None:
    if self._directory is not None:
      self._directory.write(
        self.run_id, state, self.heartbeat.get("global_step"), reason,
        self.goal if state == RUN_ENDED else "")
