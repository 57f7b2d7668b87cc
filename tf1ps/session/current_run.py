"""The run that this task is a member of: its record on the tasks that keep the job's state.

Every member knows the run's id and record (`join`). The chief also

1. finds out whether the live state belongs to its run (`adopt`), or takes over the run of living
   members (takeover.py);
2. if neither is possible, begins a run and clears the state of other runs
   (`begin_initialisation`);
3. marks the run as initialised (`mark_initialised`) and, at the end, as ended (`release`), which
   releases the ps. The status file in the run's directory says the same.
"""

from __future__ import annotations

import logging
import socket
import threading
import zlib
from typing import Callable, Dict, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import ServerRecord
from tf1ps.session import container_check, takeover
from tf1ps.session.member_watch import MemberWatch
from tf1ps.session.run_directory import RunDirectory
from tf1ps.session.run_records import RunRecords
from tf1ps.state import (
  MEMBER_STARTING,
  RUN_ENDED,
  RUN_FAILED,
  RUN_RUNNING,
  Heartbeat,
  RunRecord,
  clear_container,
  clear_run_state,
  new_run_id,
)

_log = logging.getLogger("tf1ps")


def _of_run(run_id: str, runs: List[Optional[RunRecord]],
            signature: List[list]) -> List[RunRecord]:
  """Returns the records of a run that a graph of that signature may continue."""
  return [run for run in runs if run_id and run is not None and run.id == run_id and not run.ended
          and (not run.initialised or run.signature == signature)]


def _live_runs(records: List[Optional[RunRecord]]) -> Dict[str, RunRecord]:
  return {run.id: run for run in records if run is not None and run.initialised and not run.ended}


class CurrentRun:
  """The run of a task, and its record.

  Attributes:
    id: the id of the run, or "" before it is known.
  """

  def __init__(self, server: ServerRecord, records: RunRecords, heartbeat: Heartbeat,
               watch: MemberWatch, directory: Optional[RunDirectory]):
    """Knows no run yet.

    Args:
      server: the record of this task's server.
      records: the run's records on the tasks that keep the state.
      heartbeat: the heartbeat of this task.
      watch: the watch of the other members.
      directory: the directory of a chief that saves, or None.
    """
    self.id = ""
    self._server, self._cluster, self._records = server, server.cluster, records
    self._heartbeat, self._watch, self._directory = heartbeat, watch, directory
    self._record: Optional[RunRecord] = None
    self._lock = threading.Lock()  # of the id with the record: the heartbeat's thread reads them
    self._keeps: List[object] = []  # the state tasks that keep this run's whole state
    self._lost: List[object] = []  # the state tasks that have no record of a run
    self._used: List[object] = []  # the state tasks that have had a run in this container

  @property
  def record(self) -> Optional[RunRecord]:
    """The record of the run, as this task knows it; None before there is a run."""
    with self._lock:
      return self._record

  def join(self, run: RunRecord) -> None:
    """Makes a run that the chief has initialised this task's own run."""
    with self._lock:
      self.id, self._record = run.id, run

  def check_same(self) -> None:
    """Raises AbortedError if the chief has begun to restore the run since this task joined it.

    A session that was opened before this call still uses the ps processes of that moment.
    """
    current = self._record._replace(ended=True, failed=False)
    if any(run is None or run._replace(ended=True, failed=False) != current
           for run in self._records.runs()):
      raise tf.errors.AbortedError(None, None, "the chief restores the run, or has restored it")

  @property
  def generation(self) -> int:
    """A number that changes with each restore, and is the same in all tasks."""
    return zlib.crc32(("%s %d" % (self.id, self._record.writes)).encode())

  # What the chief does.

  def adopt(self, signature: List[list],
            interrupted: Callable[[], None] = lambda: None) -> bool:
    """Returns whether the state tasks keep the live, whole state of this run.

    Sets `id` if the run continues, even if a state task has lost its variables. The state of a
    graph with another signature does not belong to this run.

    Raises:
      LivingRunError: living tasks train another run, which this chief cannot take over.
      ControlError: a state task does not answer.
    """
    container_check.check_chief(
      self._records.read(self._cluster.control_task), self._cluster.task, self._server.container)
    runs = self._records.runs()
    if self._directory is not None and not self.id:
      ids = [run.id for run in runs if run is not None and not run.ended]
      self._directory.await_free(ids.__contains__, interrupted)
    by_task = list(zip(self._records.state_tasks, runs))
    self._used = [task for task, run in by_task if run is not None]
    self._keeps, self._lost = [], []
    known = self.id or (
      self._id_of_living(runs) if self._directory is None else self._directory.run_id)
    if self.id and not any(runs):
      self._lost = list(self._records.state_tasks)
      return False  # all state tasks were restarted: this process continues its run
    mine = _of_run(known, runs, signature)
    if not mine:
      known = self._take_over(runs, signature, interrupted)
      mine = _of_run(known, runs, signature)
    if not mine:
      self.id = ""
      if any(runs):
        _log.info("the ps hold old state of another run; this chief clears it")
      return False
    self.join(max(mine, key=lambda run: run.writes))
    self._keeps = [task for task, run in by_task if run == self._record and run.initialised]
    self._lost = [task for task, run in by_task if run is None]
    return len(self._keeps) == len(self._records.state_tasks)

  def _id_of_living(self, records) -> str:
    """Returns the id of the run that another task was a member of a moment ago, or ""."""
    self._heartbeat.beat()  # even a silent member may still live
    runs = _live_runs(records)
    for member in self._heartbeat.members():
      if member.role == "worker" and member.run in runs and not member.has_ended \
          and member.age < self._heartbeat.get("timeout"):
        return member.run
    return ""

  def _take_over(self, records: List[Optional[RunRecord]], signature: List[list],
                 interrupted: Callable[[], None]) -> str:
    """Returns the id of a living member's run, which this chief continues; "" if none lives."""
    runs = _live_runs(records)
    if not runs:
      return ""
    self._heartbeat.beat()
    member = takeover.find_living(
      self._heartbeat, lambda: self._records.read(self._cluster.control_task),
      self._server.container, list(runs), self._heartbeat.get("timeout"), interrupted)
    if member is None:
      return ""
    takeover.check(runs[member.run], member, signature, self.id, self._directory)
    _log.warning(
      "%s (process %d on %s) trains run %s, whose chief on %s saved into %s. This chief takes the "
      "run over", member.name, member.pid, member.host, member.run, runs[member.run].host,
      runs[member.run].directory or "no directory")
    if self._directory is not None:
      self._directory.go_on_with(member.run)
    return member.run

  @property
  def lost_part(self) -> List[object]:
    """The tasks that lost their state, if all other tasks keep their state; set by `adopt`."""
    is_part = self._keeps and (
      len(self._keeps) + len(self._lost) == len(self._records.state_tasks))
    return list(self._lost) if is_part else []

  def begin_initialisation(self, graph=None) -> None:
    """Marks the run as not initialised, and clears the state of other runs.

    Nothing is cleared on a task that had no run. A ps whose own program may wait for a queue keeps
    its queues: only the state of `graph` is cleared there. Raises ControlError or ContainerError.
    """
    goes_on = bool(self.id)
    self._heartbeat.set(state=MEMBER_STARTING)
    if not goes_on:
      self.id = new_run_id()
    before = self._record.writes if goes_on and self._record is not None else 0
    self._write(self._new_record(before + 1))
    if not goes_on:
      spared = [task for task in self._used if self._records.may_wait_for_queues(task)]
      clear_container(self._server.container, [task for task in self._used if task not in spared])
      if graph is not None:
        clear_run_state(self._server, graph, spared)
    self._write_file(RUN_RUNNING)

  def claim(self) -> None:
    """Begins a run just before its end, for a chief whose program initialises by itself."""
    self.id = new_run_id()
    self._record = self._new_record(1)

  def mark_initialised(self, signature: List[list]) -> None:
    """Marks the run as initialised, which the other workers wait for."""
    self._heartbeat.set(run=self.id, session=0)
    self._watch.offer_saves()
    # Before the mark, so that a task that reads the mark sees the chief's state, too.
    self._heartbeat.try_beat()
    if not self._record.initialised:
      self._write(self._record._replace(initialised=True, signature=signature))
    self._write_file(RUN_RUNNING)

  def release(self, failed: bool, reason: str, goal: str, patience: float) -> None:
    """Marks the run as ended on every state task, which releases the ps.

    Args:
      failed: whether the job failed.
      reason: why it failed, for the status file.
      goal: the requested end, for the status file of a job that did not fail.
      patience: seconds that a silent task has to come back, where the job did not fail.
    """
    if self._record is None:
      return
    record = self._record._replace(ended=True, failed=failed)
    self._records.write_where_possible(record, 0.0 if failed else patience)
    self._record = record
    self._write_file(RUN_FAILED if failed else RUN_ENDED, reason, "" if failed else goal)

  def _new_record(self, writes: int) -> RunRecord:
    name = self._directory and self._directory.name
    return RunRecord(
      id=self.id, initialised=False, ended=False, failed=False, jobs=self._cluster.to_json(),
      signature=[], writes=writes, host=socket.gethostname(),
      directory=takeover.place_of(name), inode=takeover.inode_of(name))

  def _write(self, record: RunRecord) -> None:
    with self._lock:
      self._record = record
    self._records.write(record)

  def _write_file(self, state: str, reason: str = "", goal: str = "") -> None:
    if self._directory is None:
      return
    step = self._heartbeat.get("global_step")
    if state == RUN_RUNNING and step >= 0:
      self._directory.beat(self.id, step, now=True)  # this process has trained, and continues
    else:
      self._directory.write(self.id, state, step, reason, goal)
