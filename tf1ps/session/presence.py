"""Makes a task without a `MonitoredTrainingSession` or `Supervisor` present in its job.

The task's program opens plain sessions on its server, or no session at all. The other tasks still
need to know that the task is there, and how it ended:

1. A worker sends heartbeats with a count of its session runs. It starts with its first plain
   session (plain_session.py), or, after `follow_servers`, when it creates its server.
2. When the code of its program ends, a worker reports its end, even if it never had a session
   because nothing was left to do. The chief waits for the other workers, and releases the ps.
3. A ps that opens a plain session runs its own code instead of `Server.join`, such as a dequeue per
   worker. A thread watches the job. If the job has ended and the code has not, the session ends the
   process: with code 0, or with the error of a failed job.
4. A ps may only sleep instead of calling `Server.join`. After `follow_servers`, a thread also
   watches the job for such a ps, and ends the process.

A `MonitoredTrainingSession` or `Supervisor` on the same server takes the presence over, and so does
`Server.join`. A session that does not end the job hands the presence back (`hand_back`).
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Callable, Dict, Optional

from tf1ps.cluster import JobLostError, ServerRecord, leave_now, on_server, wait_for_tasks
from tf1ps.compat import EXIT_FAILED, TIMING
from tf1ps.session import ending, process_end
from tf1ps.session import membership as membership_lib
from tf1ps.session import settings as settings_lib
from tf1ps.state import MEMBER_TRAINING, wait_for_end

_log = logging.getLogger("tf1ps")
# Presences by the server's target. A process global, because a plain session knows only the target.
_present: Dict[str, Optional["Presence"]] = {}
_lock = threading.Lock()


def be_present(record: ServerRecord) -> Optional["Presence"]:
  """Returns the presence of this process's task; None if a session or `join` has taken it over."""
  with _lock:
    if record.target not in _present:
      is_worker = record.cluster.task in record.cluster.replicas
      _present[record.target] = (WorkerPresence if is_worker else PsPresence)(record)
    return _present[record.target]


def take_over(target: str) -> None:
  """Ends the presence of a task without a report, because a session or `join` takes it over."""
  with _lock:
    before = _present.get(target)
    _present[target] = None
  if before is not None:
    before.give_way()


def hand_back(membership: membership_lib.Membership, save_last: Callable[[], None],
              expects_all: bool) -> None:
  """Keeps a task present with the membership of its last session.

  Args:
    membership: the membership, which continues so that the other tasks see a single run.
    save_last: saves the steps after that session; the chief calls it after the other workers end.
    expects_all: whether a worker that never joins fails the job.
  """
  with _lock:
    _present[membership.record.target] = WorkerPresence(
      membership.record, membership, save_last, expects_all)


def follow_servers() -> None:
  """From here on, makes the task of each server present as soon as the server is created."""
  on_server(made=be_present)


class Presence(process_end.Endable):
  """A task's presence in its job, which ends with the process."""

  def count_run(self) -> None:
    """Counts a session run: the chief waits for a worker as long as the worker's runs go on."""

  def watch(self, session) -> None:
    """Ends the runs of a `BoundedSession` when the job has ended."""

  def give_way(self) -> None:
    """Ends without a report."""
    raise NotImplementedError

  def go_through_control_task(self) -> None:
    """From here on, sends reports through the server of the task that keeps the heartbeats."""


class WorkerPresence(Presence):
  """The heartbeats of a worker or the chief, and the report of its end."""

  def __init__(self, record: ServerRecord,
               membership: Optional[membership_lib.Membership] = None,
               save_last: Callable[[], None] = lambda: None, expects_all: bool = True):
    self._membership = membership or membership_lib.Membership(record)
    self._membership.start()
    self._save_last, self._expects_all = save_last, expects_all
    self._runs = 0
    process_end.register(self)

  def go_through_control_task(self) -> None:
    self._membership.heartbeat.go_through_control_task()

  def count_run(self) -> None:
    self._runs += 1
    self._membership.heartbeat.set(step=self._runs, state=MEMBER_TRAINING)

  def give_way(self) -> None:
    process_end.forget(self)
    self._membership.stop()

  def end_with_process(self, error: Optional[BaseException]) -> None:
    """Reports the end of this task; the chief first waits for the others, and releases the ps.

    Raises JobFailedError if another task of the job failed or is lost. Raises TaskUnavailableError
    if the task that keeps the reports never came.
    """
    process_end.forget(self)
    membership = self._membership
    try:
      if error is not None:
        ending.report_error(membership, error)
        return
      problems = []
      if membership.heartbeat.silence is None:  # this program has ended before the ps came
        wait_for_tasks([membership.cluster.control_task], settings_lib.START_TIMEOUT,
                       "the end of this task cannot be reported")
      if membership.is_chief:
        problems = ending.wait_for_workers(membership, settings_lib.END_TIMEOUT, lambda: None,
                                           self._expects_all)
        self._save_last()
        if not membership.run_id:
          membership.run.claim()
      ending.report_part(membership, problems)
    finally:
      membership.stop()
    if problems:
      raise ending.JobFailedError(problems)


class PsPresence(Presence):
  """Watches the job for a ps whose program does not wait in `Server.join`."""

  def __init__(self, record: ServerRecord):
    self._sessions = weakref.WeakSet()
    self._sleeps = True  # the program has had no session
    self._lost: Optional[JobLostError] = None
    self._has_ended, self._given_way = threading.Event(), threading.Event()
    self._code_has_ended = threading.Event()
    self._thread = threading.Thread(
      target=self._watch_job, args=(record,), daemon=True, name="tf1ps: end of the job")
    self._thread.start()
    process_end.register(self)

  def watch(self, session) -> None:
    self._sleeps = False
    self._sessions.add(session)
    if self._has_ended.is_set():
      session.abort(self._make_error)

  def give_way(self) -> None:
    process_end.forget(self)
    self._given_way.set()

  def end_with_process(self, error: Optional[BaseException]) -> None:
    """After a session, serves until the job has ended: the chief may not have saved yet.

    Raises JobLostError if the job ended without a release, or failed.
    """
    self._code_has_ended.set()
    if error is None and not self._sleeps:
      self._thread.join()
      if self._lost is not None:
        raise self._lost

  def _watch_job(self, record):
    if self._given_way.wait(TIMING.join_limit if self._sleeps else 0.0):
      return  # the program is in `join`
    line = ""
    try:
      line = wait_for_end(record, self._given_way, has_sessions=True)
    except JobLostError as lost:
      line, self._lost = str(lost), lost
    if self._given_way.is_set():
      return
    self._has_ended.set()
    if any(session.is_running for session in self._sessions):
      _log.warning("%s. This ps ends the session run in which it still waits, and leaves", line)
    for session in list(self._sessions):
      session.abort(self._make_error)
    # Another task of this process may still have work to do.
    if self._sleeps and len(_present) == 1 and not self._code_has_ended.is_set():
      leave_now(0 if self._lost is None else EXIT_FAILED,
                "%s. The code of this ps goes on without a session: leaving" % line)

  def _make_error(self):
    return SystemExit(0) if self._lost is None else JobLostError(str(self._lost))


on_server(joins=lambda record: take_over(record.target))
