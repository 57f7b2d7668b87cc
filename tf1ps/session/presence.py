"""The presence in its job of a task that has no `MonitoredTrainingSession` and no `Supervisor`.

Its program opens plain sessions on its server, or none at all. The other tasks still need to know
that it is there, and how it ended:

1. A worker sends heartbeats from its first plain session on (plain_session.py), with a count of its
   runs; where `follow_servers` was called, from the moment that it makes its server.
2. When the code of its program ends, a worker reports so, also if it never had a session, because
   it found nothing left to do. The chief waits for the other workers, and releases the ps.
3. A ps that opens a plain session has code of its own where others wait in `Server.join`, such as
   one dequeue per worker. A thread watches the job for it. When the job has ended and the code does
   not, its session ends the process: with 0, or with the error of a job that failed.

A `MonitoredTrainingSession` or `Supervisor` on the same server takes this over, and so does
`Server.join`. A session that does not end the job hands it back (`hand_back`).
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Callable, Dict, Optional

from tf1ps.cluster import JobLostError, ServerRecord, on_server, wait_for_tasks
from tf1ps.compat import error_line
from tf1ps.session import ending, limits, process_end
from tf1ps.session import membership as membership_lib
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED, MEMBER_TRAINING, wait_for_end

_log = logging.getLogger("tf1ps")
# By the server's target. A process global, because a plain session has nothing but the target.
_present: Dict[str, Optional["Presence"]] = {}
_lock = threading.Lock()


def be_present(record: ServerRecord) -> Optional["Presence"]:
  """Returns the presence of this process's task; None if another session takes care of it."""
  with _lock:
    if record.target not in _present:
      is_worker = record.cluster.task in record.cluster.replicas
      _present[record.target] = (WorkerPresence if is_worker else PsPresence)(record)
    return _present[record.target]


def take_over(target: str) -> None:
  """Ends the presence of a task, without a report: from here on another session takes care."""
  with _lock:
    before = _present.get(target)
    _present[target] = None
  if before is not None:
    before.give_way()


def hand_back(membership: membership_lib.Membership, save_last: Callable[[], None],
              expects_all: bool) -> None:
  """Makes a task present by the membership of its last session.

  Args:
    membership: it goes on, so that the others see one run.
    save_last: saves what came after that session; the chief calls it after the others' end.
    expects_all: whether a worker that never joins fails the job.
  """
  with _lock:
    _present[membership.record.target] = WorkerPresence(
      membership.record, membership, save_last, expects_all)


def follow_servers() -> None:
  """Makes a worker present from the moment that it makes its server; for servers made later."""
  on_server(made=_follow)


def _follow(record: ServerRecord) -> None:
  if record.cluster.task in record.cluster.replicas:
    be_present(record)


class Presence(process_end.Endable):
  """The presence of a task in its job."""

  def count_run(self) -> None:
    """Counts a run of a session: the chief waits for a worker as long as it makes runs."""

  def watch(self, session) -> None:
    """Ends the runs of a `BoundedSession` when the job has ended."""

  def give_way(self) -> None:
    """Ends without a report."""
    raise NotImplementedError

  def go_through_keeper(self) -> None:
    """Reports through the server of the task that keeps the heartbeats, from here on."""


class WorkerPresence(Presence):
  """The heartbeats of a worker, the chief included, and the report of its end."""

  def __init__(self, record: ServerRecord,
               membership: Optional[membership_lib.Membership] = None,
               save_last: Callable[[], None] = lambda: None, expects_all: bool = True):
    self._membership = membership or membership_lib.Membership(record)
    self._membership.start()
    self._save_last, self._expects_all = save_last, expects_all
    self._runs = 0
    process_end.register(self)

  def go_through_keeper(self) -> None:
    self._membership.heartbeat.go_through_keeper()

  def count_run(self) -> None:
    self._runs += 1
    self._membership.heartbeat.set(step=self._runs, state=MEMBER_TRAINING)

  def give_way(self) -> None:
    process_end.forget(self)
    self._membership.stop()

  def end_with_process(self, error: Optional[BaseException]) -> None:
    """Reports the end. The chief waits for the others before, and releases the ps.

    Raises JobFailedError if another task of the job failed or is lost; TaskUnavailableError if the
    task that keeps the reports never came.
    """
    process_end.forget(self)
    membership = self._membership
    try:
      if error is not None:
        membership.report(MEMBER_FAILED, "%s: %s" % (type(error).__name__, error_line(error)))
        return
      problems = []
      if membership.heartbeat.silence is None:  # this program ended before the ps has come
        wait_for_tasks([membership.cluster.control_task], limits.START_TIMEOUT,
                       "the end of this task cannot be reported")
      if membership.is_chief:
        problems = ending.wait_for_workers(membership, limits.END_TIMEOUT, lambda: None,
                                           self._expects_all)
        self._save_last()
        if not membership.run_id:
          membership.claim_run()
        membership.release(failed=bool(problems))
      membership.report(MEMBER_FAILED if problems else MEMBER_DONE, "; ".join(problems))
    finally:
      membership.stop()
    if problems:
      raise ending.JobFailedError(problems)


class PsPresence(Presence):
  """The watch of a job for a ps whose program has sessions of its own."""

  def __init__(self, record: ServerRecord):
    self._sessions = weakref.WeakSet()
    self._lost: Optional[JobLostError] = None
    self._has_ended, self._given_way = threading.Event(), threading.Event()
    self._thread = threading.Thread(
      target=self._watch_job, args=(record,), daemon=True, name="tf1ps: end of the job")
    self._thread.start()
    process_end.register(self)

  def watch(self, session) -> None:
    self._sessions.add(session)
    if self._has_ended.is_set():
      session.abort(self._make_error)

  def give_way(self) -> None:
    process_end.forget(self)
    self._given_way.set()

  def end_with_process(self, error: Optional[BaseException]) -> None:
    """Serves until the job has ended: the chief may not have saved yet.

    Raises JobLostError if the job ended without a release, or failed.
    """
    if error is None:
      self._thread.join()
      if self._lost is not None:
        raise self._lost

  def _watch_job(self, record):
    line = ""
    try:
      line = wait_for_end(record, self._given_way, has_sessions=True)
    except JobLostError as lost:
      line, self._lost = str(lost), lost
    if self._given_way.is_set():
      return
    self._has_ended.set()
    if any(one.is_running for one in self._sessions):
      _log.warning("%s. This ps ends the session run in which it still waits, and leaves", line)
    for session in list(self._sessions):
      session.abort(self._make_error)

  def _make_error(self):
    return SystemExit(0) if self._lost is None else JobLostError(str(self._lost))


on_server(joins=lambda record: take_over(record.target))
