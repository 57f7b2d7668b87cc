"""The wait behind `Server.join`: how a ps or another serving task learns that its job has ended.

A ps (and, with in-graph replication, a worker)

1. writes its cluster into its own control records, so that workers can compare it with theirs;
2. sends heartbeats and reads the run's record: when the chief marks the run as ended, the task is
   released; a ps that gets SIGTERM says so in its heartbeat, and stays until the chief has saved;
3. stops its heartbeats, lingers for 1.5 s, so that the last calls of other tasks succeed, and then
   leaves.

It leaves with an error if no worker comes within its start limit, if all workers of the job are
lost, have failed or have left without a release, or if the task that keeps the heartbeats is lost.
Workers with a `tf.train.Supervisor` or a plain session send no heartbeats: a ps stays while their
servers answer. A client outside of the cluster, such as `tf.Session("grpc://HOST:PORT")` in a
notebook, has a connection to one of the servers: all serving tasks stay while the connection is
open. No task reports how such programs end. So a task that has served such a program leaves without
an error in two cases: if no program has come for the length of the start limit, or if no program is
there and the task that keeps the heartbeats is lost. A persistent ps waits for a signal.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from typing import Callable, List, Optional

from tf1ps.cluster import (
  JobLostError,
  ReleasedError,
  ServerRecord,
  count_connections,
  probe_task,
  probe_tasks,
  register_end_waiter,
)
from tf1ps.compat import START_TIMEOUT, TIMING
from tf1ps.state import control, heartbeat, run

_log = logging.getLogger("tf1ps")
DEFAULT_START_TIMEOUT = 600.0  # seconds for the first worker: people start tasks by hand


def wait_for_end(record: ServerRecord, interrupted: threading.Event,
                 may_wait: Callable[[], bool] = lambda: False, has_sessions: bool = False) -> str:
  """Waits until a server's job has ended, or `interrupted` is set; returns a sentence on the end.

  Args:
    record: the record of the server.
    interrupted: ends the wait.
    may_wait: whether a ps may still wait after an interruption, for the chief's last checkpoint.
    has_sessions: whether the task's program runs sessions meanwhile, which the chief then spares.

  Raises JobLostError if the job ended without a release, or failed.
  """
  watch = _JobWatch(record, has_sessions)
  try:
    while not interrupted.wait(TIMING.poll_interval):
      line = watch.look()
      if line is not None:
        watch.close()  # before the linger: heartbeats fail once the task that keeps them has left
        interrupted.wait(TIMING.linger)
        return line
    if may_wait():
      watch.ask_for_save(may_wait)
    return "the wait was interrupted"
  finally:
    watch.close()


class _JobWatch:
  """The state of a job as a serving task sees it."""

  def __init__(self, record: ServerRecord, has_sessions: bool):
    cluster = record.cluster
    self._record, self._has_sessions = record, has_sessions
    self._is_ps = cluster.task in cluster.ps
    # A ps reads the run's record on itself; a worker that serves its devices reads it on ps 0.
    self._released_on = control.table_for(
      record, cluster.task if self._is_ps else cluster.control_task)
    self._cluster_is_written = not self._is_ps
    self._beat = heartbeat.Heartbeat(
      control.table_for(record, cluster.control_task), cluster.task,
      "ps" if self._is_ps else "worker", record.container, record.heartbeat_timeout)
    self._beat.set(state=heartbeat.MEMBER_SERVING)
    self._beat.start()
    self._began = time.monotonic()
    self._last_reminder = self._waits_since = self._began
    self._has_said_stay = False
    self._has_served = False  # workers that send no heartbeats, or clients
    self._counted_since: Optional[float] = None  # clients were there at each look since then
    self._client_since: Optional[float] = None
    self._over_since: Optional[float] = None
    self._start_timeout = record.start_timeout or max(DEFAULT_START_TIMEOUT, START_TIMEOUT)

  def close(self):
    self._beat.stop()
    self._released_on.close()

  def ask_for_save(self, may_wait: Callable[[], bool]) -> None:
    """Asks the chief to save before this ps ends; waits for the save within the grace."""
    name, until = self._record.cluster.task.name, time.monotonic() + self._record.grace
    token = uuid.uuid4().hex[:8]
    self._beat.set(leaving=token)
    has_said = False
    while self._is_ps and may_wait():
      try:
        self._beat.beat()
      except control.ControlError as error:
        _log.warning("%s ends without a last checkpoint: %s", name, error)
        return
      asked = [m for m in self._beat.members() if m.role == "chief" and m.saved_for is not None
               and not m.has_ended and m.age < TIMING.alive_within]
      if all(token in m.saved_for.split() for m in asked):
        if asked:
          _log.warning("%s ends, and the chief has saved before", name)
        return
      if time.monotonic() > until:
        _log.warning("%s ends: the chief has not saved within %g s (--grace)", name,
                     self._record.grace)
        return
      if not has_said:
        has_said = True
        _log.warning("%s got a signal, and asks the chief to save", name)
      time.sleep(TIMING.fast_poll_interval)

  def look(self) -> Optional[str]:
    """Returns None while the job runs, a sentence after its end; raises JobLostError."""
    run = self._look_for_run()
    if run is not None and self._is_ps:
      self._beat.set(run=run.id)
    if run is not None and run.ended:
      if run.failed:
        raise ReleasedError("the chief released this task: the job has failed")
      self._read_members()
      stops = [m.stop for m in self._beat.members() if m.run == run.id and m.stop]
      return "the chief released this task: %s" % (stops[0] if stops else "the job has ended")
    if not self._record.persistent:
      workers = [
        m
        for m in self._beat.members()
        if m.role != "ps" and m.state != heartbeat.MEMBER_SERVING and m.age < self._max_age()
      ]
      return self._check_control_task(workers) or self._check_workers(workers)
    return None

  def _read_members(self):
    """Reads the latest heartbeats, in which the chief says why a run has ended early."""
    try:
      self._beat.beat()
    except control.ControlError:
      pass  # the control task has left

  def _look_for_run(self) -> Optional[run.RunRecord]:
    try:
      if not self._cluster_is_written:
        self._released_on.put({
          control.CLUSTER_RECORD: self._record.cluster.to_json(),
          control.PROGRAM_RECORD: {"has_sessions": self._has_sessions}})
        self._cluster_is_written = True
      if self._record.persistent:
        return None
      return run.find_run(self._released_on.read(), self._record.container, self._max_age())
    except control.ControlError as error:
      if self._is_ps:  # the control task is this process, so the machine is very busy
        _log.warning("%s", error)
      return None

  def _max_age(self) -> float:
    """Returns in seconds how old a record of this job can be; ps 0 may keep an earlier job's."""
    return math.inf if self._is_ps else time.monotonic() - self._began

  def _check_control_task(self, workers) -> Optional[str]:
    control_task = self._record.cluster.control_task
    if control_task == self._record.cluster.task:
      return None  # this process
    silence = self._beat.silence
    if silence is None:
      silence, limit = time.monotonic() - self._began, self._start_timeout
    else:
      limit = self._record.recovery_timeout or self._record.heartbeat_timeout
    if silence <= limit:
      return None
    said = "%s, which keeps the heartbeats, has not answered for %.0f s: %s" % (
      control_task.name, silence, probe_task(control_task).detail)
    if not self._has_served or workers:
      raise JobLostError(said)
    if self._connections() > 0:
      return None
    return "the last client has left, and " + said

  def _check_workers(self, workers) -> Optional[str]:
    now = time.monotonic()
    if not workers:
      return self._await_first_worker(now)
    if not all(m.has_ended or self._beat.is_lost(m) for m in workers):
      self._over_since = None
      return None
    self._over_since = self._over_since or now
    # A chief that failed may be restarted, and its state is on this task.
    if now - self._over_since > self._record.heartbeat_timeout:
      raise JobLostError("no worker is left: " + _describe(workers))
    return None

  def _await_first_worker(self, now) -> Optional[str]:
    if self._has_clients(now):
      if self._is_confirmed(now):
        if now - self._began > self._start_timeout:
          self._say_stay("a client", "is connected")
        self._waits_since = now
      return None
    waited = now - self._waits_since
    if waited > self._start_timeout:
      return self._end_wait(now)
    if not self._has_served and now - self._last_reminder > TIMING.reminder_interval:
      self._last_reminder = now
      _log.warning("%s has waited %.0f s of %g s (--start_timeout) for its first worker",
                   self._record.cluster.task.name, waited, self._start_timeout)
    return None

  def _end_wait(self, now) -> Optional[str]:
    limit = "%g s (--start_timeout)" % self._start_timeout
    answering = self._answering_workers()
    if answering:
      self._say_stay(", ".join(answering), "answers without a session of tf1ps")
      self._waits_since, self._has_served = now, True
      return None
    if self._has_served:
      return "no worker and no client has been there for " + limit
    raise JobLostError("no worker came within " + limit)

  def _say_stay(self, whom: str, how: str):
    if not self._has_said_stay:
      _log.warning("%s stays while %s %s. It leaves %g s after the last such program has ended",
                   self._record.cluster.task.name, whom, how, self._start_timeout)
      self._has_said_stay = True

  def _has_clients(self, now) -> bool:
    """Whether a process outside of the cluster has a connection to a task that serves."""
    connections, others = self._connections(), self._others_that_serve()
    has_clients = connections + sum(m.connections for m in others) > 0
    self._has_served = self._has_served or any(m.served for m in others)
    if not has_clients:
      self._counted_since = self._client_since = None
    elif self._counted_since is None:
      self._counted_since = self._client_since = now
    elif not self._has_served and now - self._client_since > TIMING.client_works:
      # A worker that is about to join has a connection, too; a worker that has just ended has none.
      self._has_served = not self._answering_workers() and self._connections() > 0
      self._client_since = now
    self._beat.set(connections=connections, served=self._has_served)
    return has_clients

  def _is_confirmed(self, now) -> bool:
    """Whether each other task has sent a new count since clients were counted first.

    A count is as old as its heartbeat. Until the next heartbeat, a connection that was opened or
    closed between two tasks appears in only one task's count, like a client's connection.
    """
    age = max([m.age for m in self._others_that_serve()], default=0.0)
    return now - self._counted_since > age + TIMING.heartbeat_interval

  def _connections(self) -> int:
    return count_connections(self._record.target, self._record.cluster.tasks())

  def _answering_workers(self) -> List[str]:
    """The workers whose servers answer, except workers that also wait for the end of the job."""
    cluster = self._record.cluster
    waiting = {m.name for m in self._others_that_serve()}
    tasks = [task for task in cluster.replicas
             if task.name != cluster.task.name and task.name not in waiting]
    return [result.task.name for result in probe_tasks(tasks) if result.is_up]

  def _others_that_serve(self) -> List[heartbeat.Member]:
    own = self._record.cluster.task.name
    return [m for m in self._beat.members() if m.name != own
            and m.state == heartbeat.MEMBER_SERVING and not self._beat.is_lost(m)]


def _describe(workers: List[heartbeat.Member]) -> str:
  # The first member that failed or was lost is the likely cause.
  workers = sorted(workers, key=lambda m: (m.state == heartbeat.MEMBER_DONE, -m.age))
  return "; ".join("%s %s" % (m.name, m.say_end(is_lost=True)) for m in workers)


register_end_waiter(wait_for_end)
