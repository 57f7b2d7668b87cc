"""Probes the state of tasks with bounded calls: once, until all are up, or all the time.

A call of a server's status service (see compat/worker_service.py) distinguishes cases in which a
session would only wait: nothing listens, the host is unknown, a process listens and is silent, the
server is not TensorFlow's, the server is another task's, or the server was restarted since the last
call.

1. `probe_task` and `probe_tasks` probe once.
2. `wait_for_tasks` probes the tasks that a session is going to use until all are up, or a timeout
   is over. The error names each missing task, its address and the result of its probe.
3. `TaskWatch` probes tasks while a session uses them. A run on a ps that died may raise (TF 2.21)
   or hang (1.15); on a ps that was stopped the run hangs on both. A task that refuses, or is up
   under another incarnation, has lost the session's state: then `on_gone` is called. A silent task
   may only be paused: `on_lost` is called after `heartbeat_timeout` seconds of silence.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import grpc

from tf1ps.cluster.description import Task
from tf1ps.compat import (
  LINK_CERTIFICATE,
  LINK_CLOSED,
  LINK_NO_HOST,
  LINK_NO_SERVER,
  LINK_NO_TLS,
  LINK_REFUSED,
  LINK_REFUSES_US,
  LINK_UNREACHABLE,
  TIMING,
  CallError,
  Error,
  get_status,
  link_status,
  poll_pause,
)

_log = logging.getLogger("tf1ps")

UP = "up"
REFUSED = "refused"
SILENT = "silent"
NO_SUCH_HOST = "no such host"
NOT_TENSORFLOW = "no TensorFlow server"
ANOTHER_TASK = "another task"
NO_LINK = "no link"
# What the proxy of encrypted links reports (--tls_dir).
_OF_LINKS = {
  LINK_NO_HOST: (NO_SUCH_HOST, "no such host"),
  LINK_REFUSED: (REFUSED, "refused (nothing listens on that port)"),
  LINK_NO_SERVER: (REFUSED, "refused (its sidecar answers, its task does not listen)"),
  # A sidecar that ends, or has too many callers; this says nothing about the state of its task.
  LINK_CLOSED: (SILENT, "closed (the connection ended before the handshake; its log may say why)"),
  LINK_UNREACHABLE: (SILENT, "silent (no link within the limit)"),
  LINK_CERTIFICATE: (NO_LINK, "no link: its certificate is refused (the sidecar's line says why)"),
  LINK_REFUSES_US: (NO_LINK, "no link: it refuses the certificate in this task's --tls_dir"),
  LINK_NO_TLS: (NO_LINK, "no link: it does not speak TLS. Give every task --tls_dir"),
}


class ProbeResult(NamedTuple):
  """The result of a probe."""

  task: Task
  state: str  # a constant above, such as UP
  detail: str  # the state in words
  incarnation: int = 0  # the incarnation of the server's first device; new after a restart

  @property
  def is_silent(self) -> bool:
    """Whether the task gave no answer: it may be stopped, cut off, or slow rather than gone."""
    return self.state == SILENT

  @property
  def is_up(self) -> bool:
    return self.state == UP

  def __str__(self):
    return "%s at %s: %s" % (self.task.name, self.task.address, self.detail)


def probe_task(task: Task, timeout: float = TIMING.probe_limit) -> ProbeResult:
  """Probes a task within `timeout` seconds; a server that is up answers in a few milliseconds.

  It raises nothing for a task that does not answer.
  """
  try:
    devices = get_status(task.address, timeout)
  except CallError as error:
    return _failure(task, error, timeout)
  names = sorted({task_name_of_device(device) for device in devices})
  if names != [task.name]:
    answers = " and ".join(names) or "a server without devices"
    return ProbeResult(task, ANOTHER_TASK, "another task answers there: %s" % answers)
  return ProbeResult(task, UP, UP, devices[0].incarnation)


def task_name_of_device(device) -> str:
  """Returns the name of the task that has a device of `get_status`: "/job:ps/task:0"."""
  return device.name.split("/device:")[0].replace("/replica:0", "")


def _failure(task, error: CallError, timeout: float) -> ProbeResult:
  code, details = error.code, error.details.lower()
  if code == grpc.StatusCode.DEADLINE_EXCEEDED:
    return ProbeResult(task, SILENT, "silent (no answer within %.1f s)" % timeout)
  status = link_status(error.details)
  if status is not None:
    return ProbeResult(task, *_OF_LINKS.get(status, (REFUSED, "refused (status %d)" % status)))
  if code == grpc.StatusCode.UNAVAILABLE:
    if "dns resolution failed" in details or "errors resolving" in details:
      return ProbeResult(task, NO_SUCH_HOST, "no such host")
    if "connection refused" in details:
      return ProbeResult(task, REFUSED, "refused (nothing listens on that port)")
    if "http" in details or "settings frame" in details:
      return ProbeResult(task, NOT_TENSORFLOW, "no TensorFlow server: it does not speak gRPC")
    return ProbeResult(task, REFUSED, "refused (%s)" % error.details.strip().splitlines()[0][:200])
  if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL):
    return ProbeResult(task, NOT_TENSORFLOW, "no TensorFlow server: %s" % error.details)
  return ProbeResult(task, NOT_TENSORFLOW, "no TensorFlow server answers: %s" % error)


class TaskUnavailableError(Error, RuntimeError):
  """Tasks did not come up within the limit, or ended.

  Attributes:
    seen: the last `ProbeResult` of each of these tasks.
  """

  def __init__(self, seen: Sequence[ProbeResult], waited: float, what: str):
    self.seen = list(seen)
    listed = "; ".join(str(result) for result in self.seen)
    super().__init__("%s after %.0f s: %s" % (what, waited, listed))


def probe_tasks(tasks: Sequence[Task], timeout: float = TIMING.probe_limit) -> List[ProbeResult]:
  """Probes tasks side by side; returns the results in the order of the tasks."""
  if len(tasks) < 2:
    return [probe_task(task, timeout) for task in tasks]
  with concurrent.futures.ThreadPoolExecutor(min(len(tasks), 16)) as pool:
    return list(pool.map(lambda task: probe_task(task, timeout), tasks))


def wait_for_tasks(
  tasks: Sequence[Task],
  timeout: float,
  what: str = "not every task of the cluster is there",
  interrupted: Optional[Callable[[], None]] = None,
) -> List[ProbeResult]:
  """Waits until every task is up; returns the result of each task, with its incarnation.

  Args:
    tasks: the tasks that a session is going to use.
    timeout: seconds for all of them together.
    what: the beginning of the error.
    interrupted: called in every round; raises to end the wait early, such as after a signal.

  Raises:
    TaskUnavailableError: tasks are missing; the error names each of them, its address and the
      result of its probe.
    ValueError: the timeout is not positive.
  """
  if timeout <= 0:
    raise ValueError("timeout must be a positive number of seconds, got %r" % (timeout,))
  began = time.monotonic()
  logged, logged_at = None, began - TIMING.reminder_interval
  seen = {}
  while True:
    limit = max(0.1, min(TIMING.probe_limit, began + timeout - time.monotonic()))
    missing = [task for task in tasks if not (task in seen and seen[task].is_up)]
    for result in probe_tasks(missing, limit):
      # A probe shortened by the end of the wait may get no answer where a longer probe gets one.
      if not (result.is_silent and limit < TIMING.probe_limit and result.task in seen):
        seen[result.task] = result
    absent = [seen[task] for task in tasks if not seen[task].is_up]
    if not absent:
      # A task that was up in an early round may have ended since: all tasks are probed again.
      final = probe_tasks(tasks, limit) if len(missing) != len(tasks) else [seen[t] for t in tasks]
      if all(result.is_up for result in final):
        return final
      seen = {result.task: result for result in final}
      continue
    now = time.monotonic()
    if now - began >= timeout:
      raise TaskUnavailableError(absent, now - began, what)
    line = "; ".join(str(result) for result in absent)
    is_due = line != logged or now - logged_at >= TIMING.reminder_interval
    if is_due and now - began > TIMING.first_report:
      _log.warning("waiting (%.0f of %.0f s) for %s", now - began, timeout, line)
      logged, logged_at = line, now
    if interrupted is not None:
      interrupted()
    time.sleep(max(0.0, min(poll_pause(now - began), began + timeout - now)))


class TaskWatch:
  """A thread that probes tasks, from `start` to `stop`."""

  def __init__(
    self,
    seen: Sequence[ProbeResult],
    heartbeat_timeout: float,
    on_gone: Callable[[ProbeResult], Optional[bool]],
    on_lost: Callable[[ProbeResult, float], None],
  ):
    """Prepares the thread; `start` starts it.

    Args:
      seen: the result of each task when the session was created, with its incarnation.
      heartbeat_timeout: seconds of silence after which a task counts as lost.
      on_gone: called with the result of a task that was restarted or refuses; it ends the watch
        unless it returns True.
      on_lost: called with the result of a silent task and the seconds of silence; it ends the
        watch.
    """
    if heartbeat_timeout <= 0:
      raise ValueError("heartbeat_timeout must be a positive number of seconds, got "
                       "%r" % (heartbeat_timeout,))
    self._tasks = [result.task for result in seen]
    self._incarnations = {result.task: result.incarnation for result in seen}
    self._heartbeat_timeout, self._on_gone, self._on_lost = heartbeat_timeout, on_gone, on_lost
    self._refusals: Dict[object, int] = {}
    self._stopped = threading.Event()
    now = time.monotonic()
    self._answered_at = {task: now for task in self._tasks}
    self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: watch the ps")

  def start(self) -> None:
    """Starts the thread if there are tasks to watch."""
    if self._tasks:
      self._thread.start()

  def stop(self) -> None:
    """Ends the thread; waits for a probe in progress within the probe's limit."""
    self._stopped.set()
    if self._thread.is_alive() and self._thread is not threading.current_thread():
      self._thread.join(TIMING.watch_probe_limit + TIMING.thread_end_limit)

  def _watch(self):
    before = time.monotonic()
    while not self._stopped.wait(self._pause()):
      seen = probe_tasks(self._tasks, timeout=TIMING.watch_probe_limit)
      now = time.monotonic()
      if now - before > 3 * TIMING.heartbeat_interval + 2 * TIMING.watch_probe_limit:
        # This process itself was stopped, so the silence was not the tasks' silence.
        self._answered_at = {task: now for task in self._tasks}
      before = now
      for result in seen:
        if self._stopped.is_set() or self._judge(result):
          return

  def _pause(self) -> float:
    """Returns the pause before the next probes, which is short after a refusal."""
    return TIMING.poll_interval if any(self._refusals.values()) else TIMING.heartbeat_interval

  def _judge(self, result: ProbeResult) -> bool:
    """Calls back if the task has ended or is lost; returns whether that ends the watch."""
    now = time.monotonic()
    if result.is_up:
      self._answered_at[result.task] = now
      self._refusals[result.task] = 0
      if result.incarnation != self._incarnations[result.task]:
        return not self._on_gone(result._replace(detail="it was started again"))
      return False
    if not result.is_silent:
      # A full connection backlog also refuses for a moment, so only two refusals in a row count.
      self._refusals[result.task] = self._refusals.get(result.task, 0) + 1
      if self._refusals[result.task] < 2:
        return False
      self._refusals[result.task] = 0
      return not self._on_gone(result)
    silence = now - self._answered_at[result.task]
    if silence >= self._heartbeat_timeout:
      self._on_lost(result, silence)
      return True
    return False
