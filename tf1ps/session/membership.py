"""A task's membership of a run, from its first heartbeat to its last.

A `Membership` holds what this task shares with the others of its job: the heartbeat, the run's
records (`RunRecords`), and the run's id. The session creator drives it:

  the chief        `adopt` (is the live state ours?), `begin_initialisation`, `mark_initialised`
  another worker   `find_run`, until it returns the initialised run of a living chief
  both             `report`, then the chief's `release`
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Dict, List, Optional

from tf1ps.cluster import LimitExceeded, ServerRecord, call_within
from tf1ps.compat import TIMING, Error
from tf1ps.session import container_check, reset_watch
from tf1ps.state import (
  CLUSTER_RECORD,
  MEMBER_TRAINING,
  RUN_ENDED,
  RUN_FAILED,
  RUN_RUNNING,
  ControlError,
  ControlRecord,
  ControlTable,
  Heartbeat,
  Member,
  RunFile,
  RunRecord,
  clear_container,
  find_run,
  members_of,
  new_run_id,
  write_run,
)

_log = logging.getLogger("tf1ps")


class ClusterMismatchError(Error, RuntimeError):
  """Another task of the job was started with a different cluster."""


class RunRecords:
  """The run's record on each task that keeps the job's variables, as one task of the job sees them.

  These tasks, the holders, are the ps; without ps, the chief. The chief writes the record on all of
  them, one after the other; a run is whole where all of them have the same.

  Attributes:
    holders: the tasks that keep the job's variables.
  """

  def __init__(self, record: ServerRecord):
    """Prepares access; no call is made yet. `record` is that of this task's server."""
    cluster = record.cluster
    self.holders = cluster.ps or [cluster.control_task]
    self._container = record.container
    self._control_task = cluster.control_task
    self._tables = {task: ControlTable(record.target, cluster.task, task)
                    for task in self.holders}

  def read(self, task) -> Dict[str, ControlRecord]:
    """All control records of one holder; raises control.ControlError."""
    return self._tables[task].read()

  def runs(self) -> List[Optional[RunRecord]]:
    """The run's record on each holder, None where there is none; raises control.ControlError."""
    return [find_run(self.read(task), self._container) for task in self.holders]

  def write(self, run: RunRecord) -> None:
    """Writes the run's record on each holder; raises control.ControlError."""
    for table in self._tables.values():
      write_run(table, self._container, run)

  def write_where_possible(self, run: RunRecord) -> None:
    """Like `write`, and goes on where a holder does not answer."""
    # The task with the heartbeats last: the others look there while they live.
    for task in sorted(self.holders, key=lambda task: task == self._control_task):
      for is_last in (False, True):  # a call may fail whose write arrived: the next one tells
        try:
          write_run(self._tables[task], self._container, run)
          break
        except ControlError as error:
          if is_last:
            _log.warning("%s may not have been released: %s", task.name, error)

  def clusters(self) -> Dict[object, dict]:
    """What each ps was told of the cluster, as JSON; a server of stock's does not tell."""
    until = time.monotonic() + TIMING.cluster_record_limit
    told = {}
    for task in self.holders:
      found = self.read(task).get(CLUSTER_RECORD)
      while found is None and task.job == "ps" and time.monotonic() < until:
        time.sleep(TIMING.fast_poll_interval)
        found = self.read(task).get(CLUSTER_RECORD)
      if found is not None:
        told[task] = found.value
    return told

  def close(self) -> None:
    """Closes the sessions, within the limits of a call."""
    for table in self._tables.values():
      table.close()


class Membership:
  """This task's membership of a run.

  Attributes:
    cluster: as this task knows it.
    holders: the tasks that keep the job's variables: the ps; without ps, the chief.
    heartbeat: the `membership.Heartbeat`.
    resets: the `reset_watch.ResetWatch` of the job's container.
    run_id: the id of the run; "" before it is known.
    is_over: whether no step follows for which this task needs another worker.
  """

  def __init__(self, record: ServerRecord, checkpoint_dir: Optional[str] = None,
               heartbeat_timeout: Optional[float] = None):
    """Prepares; `start` begins the heartbeat.

    Args:
      record: of this task's server.
      checkpoint_dir: where the chief keeps the run's status file, or None.
      heartbeat_timeout: seconds of silence until a task is lost; None: the server's.
    """
    self.record = record
    self.cluster = record.cluster
    self.heartbeat_timeout = (
      record.heartbeat_timeout if heartbeat_timeout is None else heartbeat_timeout)
    self.is_chief = self.cluster.is_chief
    self.run_id, self.is_over = "", False
    self._records = RunRecords(record)
    self.holders = self._records.holders
    self._file = RunFile(checkpoint_dir) if checkpoint_dir and self.is_chief else None
    self._current: Optional[RunRecord] = None
    self._on_new_run: Optional[Callable[[str], None]] = None
    self._at_stop: List[Callable[[], None]] = []
    self._lock = threading.Lock()
    self.heartbeat = Heartbeat(
      ControlTable(record.target, self.cluster.task, self.cluster.control_task),
      self.cluster.task, "chief" if self.is_chief else "worker", record.container,
      self.heartbeat_timeout, self._look)
    self.resets = reset_watch.ResetWatch(
      self.heartbeat, lambda: self._records.read(self.cluster.control_task), record.container)

  def start(self) -> None:
    """Begins the heartbeat; does nothing the second time."""
    self.heartbeat.start()

  def at_stop(self, callback: Callable[[], None]) -> None:
    """Has a callback called when all is said and the heartbeat has ended."""
    self._at_stop.append(callback)

  def stop(self) -> None:
    """Ends the heartbeat and closes the sessions; a task that is silent is left behind."""
    def stop():
      self.heartbeat.stop()
      self._records.close()
      for callback in self._at_stop:
        callback()

    try:
      call_within(TIMING.thread_end_limit, "ending the heartbeat", stop)
    except LimitExceeded as error:
      _log.info("%s", error)

  def on_new_run(self, callback: Optional[Callable[[str], None]]) -> None:
    """Has a callback called when another run, or a reset, takes this session's state away."""
    self.resets.begin(callback)
    self._on_new_run = callback

  @property
  def examples_before(self) -> int:
    """What an earlier process of this task trained on in this run."""
    previous = self.heartbeat.previous
    if previous is None or not self.run_id or previous.run != self.run_id or previous.has_ended:
      return 0
    return previous.examples

  def compare_clusters(self) -> None:
    """Refuses ps that were started with a different cluster; raises ClusterMismatchError."""
    for task, jobs in self._records.clusters().items():
      self.compare_with(task, jobs)

  def compare_with(self, task, jobs: dict) -> None:
    """Refuses another task's description of the cluster; raises ClusterMismatchError."""
    found = self.cluster.differences(jobs)
    if found:
      raise ClusterMismatchError("%s at %s was started with a different cluster than %s: %s" % (
        task.name, task.address, self.cluster.task.name, "; ".join(found)))

  def find_run(self) -> Optional[RunRecord]:
    """The run to join, once its chief lives and has initialised it on every holder."""
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

  def chief_member(self) -> Optional[Member]:
    """What the chief last said of itself, or None."""
    return self._chief_among(self.heartbeat.members())

  def _chief_among(self, members) -> Optional[Member]:
    found = [member for member in members if member.name == self.cluster.chief.name]
    return found[0] if found else None

  def join(self, found: RunRecord) -> None:
    """Takes part in a run."""
    with self._lock:
      self.run_id, self._current = found.id, found
    self.heartbeat.set(run=found.id, state=MEMBER_TRAINING)
    self._beat()  # a chief that dies now shall find, when it is back, that its run lives
    _log.info("joined run %s", found.id)

  def adopt(self, signature: List[list]) -> bool:
    """Looks at what the holders keep; returns whether it is this run's live, whole state.

    Sets `run_id` where the run goes on, even if a holder lost its part. State that belongs to
    another graph than the one with this signature is not this run's. Raises control.ControlError.
    """
    container_check.check_chief(
      self._records.read(self.cluster.control_task), self.cluster.task, self.record.container)
    found = self._records.runs()
    known = self.run_id or self._id_on_file() or self._id_of_living(found)
    mine = [f for f in found if f is not None and f.id == known and not f.ended
            and (not f.initialised or f.signature == signature)]
    if not known or not mine:
      self.run_id = ""
      if any(f is not None for f in found):
        _log.info("the ps keep the leavings of another run; they are cleared")
      return False
    self.run_id = known
    with self._lock:
      self._current = max(mine, key=lambda f: f.writes)
    return all(f is not None and f == mine[0] and f.initialised for f in found)

  def begin_initialisation(self) -> None:
    """Marks the holders as not initialised, clears what is no part of this run, and begins it."""
    goes_on = bool(self.run_id)
    if not goes_on:
      self.run_id = new_run_id()
    before = self._current.writes if goes_on and self._current is not None else 0
    self._write(RunRecord(
      id=self.run_id, initialised=False, ended=False, failed=False, jobs=self.cluster.to_json(),
      signature=[], writes=before + 1))
    if not goes_on:
      clear_container(self.record.container, self.holders)
    self._write_file(RUN_RUNNING)

  def mark_initialised(self, signature: List[list]) -> None:
    """Lets the workers in."""
    if not self._current.initialised:
      self._write(self._current._replace(initialised=True, signature=signature))
    self.heartbeat.set(run=self.run_id, state=MEMBER_TRAINING)
    self._beat()
    self._write_file(RUN_RUNNING)

  def release(self, failed: bool = False) -> None:
    """Marks the run as ended on every holder, which releases the ps."""
    if self._current is None:
      return
    record = self._current._replace(ended=True, failed=failed)
    self._records.write_where_possible(record)
    self._current = record
    self._write_file(RUN_FAILED if failed else RUN_ENDED)

  def report(self, state: str, reason: str, limit: float = TIMING.report_limit) -> bool:
    """Reports this task's end, within a limit of seconds; returns whether it was heard."""
    try:
      return call_within(
        limit + 0.2, "reporting this task's end", self.heartbeat.report, state, reason, limit)
    except LimitExceeded as error:
      _log.warning("nobody heard that this task is %s (%s): %s", state, reason, error)
      return False

  def _beat(self):
    try:
      self.heartbeat.beat()
    except ControlError:
      pass

  def _write(self, record: RunRecord) -> None:
    with self._lock:
      self._current = record
    self._records.write(record)

  def _id_on_file(self) -> str:
    status = self._file.read() if self._file is not None else None
    return status.run if status is not None and status.state == RUN_RUNNING else ""

  def _id_of_living(self, found) -> str:
    """Without a directory: the run in which another member took part a moment ago."""
    if self._file is not None:
      return ""
    self.heartbeat.beat()  # who is not heard now must not be taken for dead
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
      if self._file is not None and current is not None and not current.ended:
        self._file.touch(
          self.run_id, self.heartbeat.get("global_step"), min(5.0, self.heartbeat_timeout / 6))
      return
    found = find_run(records, self.record.container)
    if callback is not None and None not in (found, current) and found.id != current.id:
      callback("the chief began another run (%s)" % found.id)

  def _write_file(self, state: str) -> None:
    if self._file is not None:
      self._file.write(self.run_id, state, self.heartbeat.get("global_step"))
