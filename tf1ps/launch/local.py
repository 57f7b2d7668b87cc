"""Runs a whole job on this machine: starts its tasks, watches them, ends them.

1. One process imports TensorFlow (`fork_server.ForkServer`).
2. The launcher chooses ports, the caller makes the tasks for these addresses, and all are started.
3. The launcher waits for the ends of the workers, then of the ps, then of the evaluator. A worker
   that ends with 0 leaves the others alone. The ps and the evaluator have a limit.
4. If a task found its port taken (`EXIT_PORT_TAKEN`), the others are ended, and 2. begins again.
5. A task that fails is started again at its address, if the caller allows restarts (restarts.py).
6. The first task that fails without a restart ends the job, and so does a signal to the launcher:
   first the workers, so that the chief can save the values of the ps, then the ps and the
   evaluator; with a signal, and killed after a limit. A second signal kills all at once.
7. The last line says how the job ended, and names the first failure, not its consequences. Above it
   are the last lines of the task that failed first; after a crash loop, those of its first failure.

A task that fails makes others fail: the first one is the cause. Among failures that the launcher
saw at once, a task that a signal killed comes before one that chose its exit code. A task with
`EXIT_RELEASED` (the chief has reported to it that the job failed) is the cause only where no other
is: the launcher gives the chief some seconds to end and to say why.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import shutil
import signal
import socket
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import (
  EXIT_FAILED,
  EXIT_PORT_TAKEN,
  EXIT_REFUSED,
  EXIT_RELEASED,
  TIMING,
  signal_exit_code,
  signal_name,
)
from tf1ps.launch.fork_server import (
  ForkServer,
  ForkServerLost,
  LocalTask,
  PreloadError,
  TaskProcess,
)
from tf1ps.launch.output import Output, Screen, log_path
from tf1ps.launch.ports import find_free_addresses
from tf1ps.launch.restarts import Restarts

# How many of a failed task's last lines are shown again at the end.
_REPORT_LINES = 10

_PREFIX = "tf1ps-local: "


class Outcome(NamedTuple):
  """How the tasks of a job ended."""
  # 0 if every task returned 0; 128 + n if signal n ended the launcher; else 1.
  exit_code: int
  # How it ended: "ended by SIGINT"; for a failure, the tasks that failed first, and why.
  text: str
  # For a failure, the last lines of the tasks that failed first, ready to be shown.
  report: Sequence[str] = ()
  # Whether a task found its port taken, so that another try makes sense.
  port_taken: bool = False
  # How many failed tasks were started again.
  restarts: int = 0


def run_tasks(make_tasks: Callable[[Dict[str, List[str]]], Sequence[LocalTask]],
              num_ps: int, num_workers: int, evaluator: bool, log_dir: Optional[str],
              preload: Sequence[str] = (), grace: float = 30.0, tries: int = 5,
              log: Callable[[str], None] = print, quiet: bool = True,
              keeps_logs: bool = True, max_restarts: int = 0,
              save_limit: float = 0.0, beside: Sequence[LocalTask] = ()) -> Outcome:
  """Runs the tasks of a job on this machine until all have ended.

  Call it from the main thread, where signals arrive.

  Args:
    make_tasks: called with {"ps": ["127.0.0.1:port", ...], "worker": [...]}, and again with other
      ports if some were taken; returns the `LocalTask`s "ps 0", "worker 0", "evaluator 0", ...
    num_ps: number of ps, 0 or more.
    num_workers: number of workers, 1 or more.
    evaluator: whether there is an "evaluator 0", which has no address.
    log_dir: directory for one log file per task, made if absent; None for none.
    preload: names of the modules to import once for all tasks: "tensorflow.compat.v1".
    grace: seconds from the end of the last worker until the ps must have ended.
    tries: how often the tasks are started when ports were taken meanwhile, 1 or more.
    log: shows one line.
    quiet: hold back the output of the imports, unless one of them fails.
    keeps_logs: False: the log directory is removed after a job that ends with 0.
    max_restarts: how often each task is started again after a failure, 0 or more.
    save_limit: seconds that a chief may need to save and leave after a signal to the launcher.
    beside: tasks that serve the user and are no part of the job, such as `board_task`. They start
      with it and are ended with it; the job goes on without one that fails.

  Returns:
    The `Outcome`.

  Raises:
    ValueError: arguments out of range, tasks other than the announced ones, or tasks that no other
      process could run. No process is left running.
    OSError: if `log_dir` cannot be written.
  """
  for name, value, least in (("num_ps", num_ps, 0), ("num_workers", num_workers, 1),
                             ("tries", tries, 1), ("grace", grace, 0),
                             ("max_restarts", max_restarts, 0)):
    if not value >= least:
      raise ValueError("%s must be %d or more, not %r." % (name, least, value))
  if log_dir is not None:
    os.makedirs(log_dir, exist_ok=True)
  started = time.monotonic()
  screen = Screen(log)
  outcome = None
  try:
    with SignalQueue() as interrupts, ForkServer(preload, quiet) as server:
      outcome = _wait_ready(server, interrupts)
      for number in range(1, tries + 1):
        if outcome is None and interrupts.received:
          outcome = _interrupted(interrupts.received[0])
        if outcome is not None:
          break
        local_tasks = _make(make_tasks, num_ps, num_workers, evaluator)
        attempt = _Attempt(server, interrupts, screen, log_dir, grace, keeps_logs, max_restarts,
                           save_limit, beside)
        outcome = attempt.run(local_tasks)
        if outcome.port_taken and number < tries:
          screen.line(_PREFIX + "%s; starting all tasks again with new ports, try %d "
                      "of %d" % (outcome.text, number + 1, tries))
          outcome = None
  finally:
    screen.close()
    if log_dir is not None and not keeps_logs:
      _remove_logs(log_dir, outcome)
  severity = "ERROR" if outcome.exit_code else "INFO"
  for line in outcome.report:
    screen.line(_PREFIX + line, severity)
  text = {0: "ok, " + _count(num_ps, num_workers, evaluator, outcome.restarts),
          EXIT_FAILED: "failed: " + outcome.text}.get(outcome.exit_code, outcome.text)
  if outcome.exit_code and log_dir is not None and os.path.isdir(log_dir):
    text += "" if log_dir in text else "; logs in %s" % log_dir
  screen.line(_PREFIX + "%s, %.1f s" % (text, time.monotonic() - started), severity)
  return outcome


def _remove_logs(log_dir: str, outcome: Optional[Outcome]) -> None:
  """Removes the log directory after a good job; after another one only if it is empty."""
  if outcome is not None and not outcome.exit_code:
    shutil.rmtree(log_dir, ignore_errors=True)
    return
  with contextlib.suppress(OSError):  # it has logs
    os.rmdir(log_dir)


def _wait_ready(server, interrupts):
  """Waits for the imports; returns None, or the outcome if the job ends here."""
  end = time.monotonic() + TIMING.import_limit
  try:
    while not server.ready:
      left = end - time.monotonic()
      if left <= 0:
        return _failure("the imports took more than %g s" % TIMING.import_limit)
      multiprocessing.connection.wait([server, interrupts], left)
      interrupts.take()
      if interrupts.received:
        return _interrupted(interrupts.received[0])
      server.take()
  except (PreloadError, ForkServerLost) as error:
    *report, last = str(error).splitlines()
    return _failure(last, report)
  return None


def _make(make_tasks, num_ps, num_workers, evaluator):
  """Chooses ports and returns the caller's tasks for them."""
  addresses = find_free_addresses(num_ps + num_workers)
  local_tasks = list(make_tasks({"ps": addresses[:num_ps], "worker": addresses[num_ps:]}))
  expected = ["ps %d" % i for i in range(num_ps)]
  expected += ["worker %d" % i for i in range(num_workers)]
  expected += ["evaluator 0"] if evaluator else []
  names = [task.name for task in local_tasks]
  if sorted(names) != sorted(expected):
    raise ValueError("The tasks to start should be %s, but are %s." % (
        ", ".join(expected), ", ".join(names) or "none"))
  return local_tasks


def _count(num_ps, num_workers, evaluator, restarts):
  """Returns "2 ps and 1 worker", "1 ps, 2 workers and 1 evaluator, 3 restarts"."""
  parts = ["%d ps" % num_ps, _plural(num_workers, "worker")]
  parts = "%s, %s and 1 evaluator" % tuple(parts) if evaluator else " and ".join(parts)
  return parts + (", " + _plural(restarts, "restart") if restarts else "")


def _plural(number, noun):
  return "%d %s%s" % (number, noun, "" if number == 1 else "s")


class _Attempt:
  """One start of all tasks, to the end of all of them."""

  def __init__(self, server: ForkServer, interrupts: SignalQueue,
               screen: Screen, log_dir: Optional[str], grace: float, keeps_logs: bool,
               max_restarts: int, save_limit: float, beside: Sequence[LocalTask]):
    """Prepares a start; the arguments are the same in all starts of a job."""
    self._signalled_limit = max(
      TIMING.workers_end_limit_after_signal, save_limit + TIMING.killed_limit)
    self._keeps_logs = keeps_logs
    self._server, self._interrupts, self._screen = server, interrupts, screen
    self._log_dir, self._grace, self._beside = log_dir, grace, beside
    self._tasks: Dict[str, LocalTask] = {}
    self._current: Dict[str, TaskProcess] = {}  # the last start of each task
    self._restarts = Restarts(max_restarts)
    self._due: Dict[str, float] = {}  # when a task that failed is started again
    self._failed: List[TaskProcess] = []  # those that are not started again, the first one first
    self._seen = len(server.ended)  # of the server's ended tasks
    self._is_ending = False
    self._output: Optional[Output] = None
    # The tasks that failed first.
    self._causes: List[TaskProcess] = []
    # How many of the signals have been acted on.
    self._handled = 0

  def run(self, local_tasks: Sequence[LocalTask]) -> Outcome:
    """Runs the tasks; all of them have ended when this returns.

    A name's first word is its job. Raises ValueError and OSError as `ForkServer.start_task`, and if
    a log file cannot be written.
    """
    try:
      self._start([*local_tasks, *self._beside])
      outcome = self._watch()
      if outcome.exit_code == EXIT_FAILED:
        self._end(signal.SIGTERM, TIMING.workers_end_limit)
        outcome = self._look_for_taken_port(outcome)
      elif outcome.exit_code:
        # SIGHUP (the terminal has closed) counts as SIGTERM.
        first = self._interrupts.received[0]
        self._end(signal.SIGINT if first == signal.SIGINT else signal.SIGTERM,
                  self._signalled_limit)
      else:
        self._end(signal.SIGTERM, 0.0)  # the tasks beside the job
    except ForkServerLost as error:
      outcome = _failure(str(error))
    finally:
      if self._output is not None:
        self._output.close(TIMING.output_limit)
    return outcome._replace(report=() if outcome.port_taken else self._report(),
                            restarts=self._restarts.total)

  def _start(self, local_tasks):
    try:
      for task in local_tasks:
        self._tasks[task.name] = task
        self._current[task.name] = self._server.start_task(task)
        self._restarts.note_start(task.name)
      processes = list(self._current.values())
      self._screen.line(_PREFIX + "started %s%s" % (
          ", ".join("%s (process %d)" % (process.name, process.pid) for process in processes),
          self._say_logs()))
      self._output = Output(processes, self._screen, self._log_dir)
    except BaseException:
      for process in self._current.values():
        os.close(process.output)
      raise

  def _start_due(self):
    """Starts the tasks again whose pause is over, unless a signal ends the job."""
    if self._interrupts.received:
      return
    for name in [name for name, moment in self._due.items() if moment <= time.monotonic()]:
      del self._due[name]
      self._current[name] = self._server.start_task(self._tasks[name])
      self._restarts.note_start(name)
      self._output.add(self._current[name])

  def _start_none(self):
    """From here on no task is started again."""
    self._is_ending = True
    self._due.clear()

  def _say_logs(self):
    if self._log_dir is None:
      return ""
    return "; logs in %s%s" % (
      self._log_dir, "" if self._keeps_logs else ", removed after a good end without --log_dir")

  def _watch(self):
    """Waits until all tasks have ended, or until there is a reason to end them."""
    for jobs, limit in ((("worker",), None), (("ps",), self._grace),
                        (("evaluator",), TIMING.evaluator_limit)):
      if jobs == ("ps",):
        self._due = {name: moment for name, moment in self._due.items() if _job_of(name) != "ps"}
      ended = self._wait(self._have_ended(jobs, or_failed=True), limit)
      received, failed = self._interrupts.received, self._failed
      # A user may signal every process of the job: tasks that end by that did not fail.
      if received and (failed or not ended):
        self._screen.line(_PREFIX + "%s: ending the workers, then the others" % (
            signal_name(received[0])))
        return _interrupted(received[0])
      if failed:
        self._start_none()
        self._wait(lambda: self._causes_of(self._failed) or not self._running(("worker",)),
                   TIMING.cause_limit)
        return self._failed_outcome()
      if not ended and jobs == ("ps",) and all(
          self._restarts.count(process.name) for process in self._running(jobs)):
        for process in self._running(jobs):  # it missed its release, and has nothing to keep
          self._server.signal_task(process, signal.SIGKILL)
        ended = self._wait(self._have_ended(jobs), TIMING.killed_limit)
      if not ended:
        names = ", ".join(process.name for process in self._running(jobs))
        return _failure("%s did not end within %g s after the last %s" % (
            names, limit, "worker" if jobs == ("ps",) else "ps"))
    return Outcome(0, "ok")

  def _wait(self, done, limit=None):
    """Waits for a condition; False after `limit` seconds, or when another signal has arrived."""
    end = None if limit is None else time.monotonic() + limit
    while True:
      self._start_due()
      self._take_ended()  # also those whose end came while a task was started
      if done():
        return True
      if len(self._interrupts.received) > self._handled or (
          end is not None and time.monotonic() >= end):
        return False
      moments = list(self._due.values()) + ([] if end is None else [end])
      left = max(0.0, min(moments) - time.monotonic()) if moments else None
      multiprocessing.connection.wait([self._server, self._interrupts], left)
      self._interrupts.take()

  def _take_ended(self):
    """Takes the server's messages, and decides for each failed task whether it starts again."""
    self._server.take()
    ended, self._seen = self._server.ended[self._seen:], len(self._server.ended)
    # Of failures that were seen at once, a kill is more likely the cause.
    for process in sorted(ended, key=lambda process: process.exit_code > 0):
      if process.exit_code:
        self._note_failure(process)

  def _note_failure(self, process):
    """Has a failed task started again after a pause, or adds it to the failed ones."""
    if any(process.name == task.name for task in self._beside):
      if not self._is_ending:
        self._screen.line(_PREFIX + "%s: the job goes on without it" % self._describe(process))
      return
    pause = None
    if not self._is_ending and not self._interrupts.received:
      if self._is_spare(process):
        self._screen.line(_PREFIX + "%s, after the workers have ended with 0: no restart" % (
          self._describe(process)))
        return
      pause = self._restarts.pause_after(process)
    if pause is None:
      self._failed.append(process)
      return
    self._output.wait_end(process, TIMING.output_limit)
    self._screen.line(_PREFIX + "%s%s: %s" % (
      self._describe(process), self._last_line(process), self._restarts.say(process.name, pause)))
    self._due[process.name] = time.monotonic() + pause

  def _is_spare(self, process):
    """Whether this is a ps that no worker needs any more, in a job with restarts."""
    return self._restarts.are_allowed and _job_of(process.name) == "ps" and not any(
      _job_of(name) == "worker" and (one.exit_code != 0) for name, one in self._current.items())

  def _running(self, jobs=None):
    return [process for process in self._current.values()
            if process.exit_code is None and (jobs is None or _job_of(process.name) in jobs)]

  def _have_ended(self, jobs=None, or_failed=False):
    """Returns the condition that no task of these jobs is left, or any task has failed for good."""
    return lambda: (or_failed and bool(self._failed)) or not self._running(jobs) and not any(
      jobs is None or _job_of(name) in jobs for name in self._due)

  def _causes_of(self, failed):
    """Returns the failed tasks that may be the cause."""
    return [process for process in failed if process.exit_code != EXIT_RELEASED]

  def _failed_outcome(self):
    """Returns the outcome after a failure, when the output of the failed tasks has been shown."""
    failed = self._failed
    failed = sorted(self._causes_of(failed) or failed, key=lambda process: process.exit_code > 0)
    for process in failed:
      self._output.wait_end(process, TIMING.output_limit / len(failed))
    if self._running():
      self._screen.line(_PREFIX + "%s: ending the others" % (
        "; ".join(self._describe(process) for process in failed)))
    self._causes = [self._restarts.first_failure(process) for process in failed]
    return _failure("; ".join(
      self._describe(process) + self._last_line(process) + self._say_restarts(process)
      for process in failed))

  def _say_restarts(self, process):
    count = self._restarts.count(process.name)
    return ", after %s" % _plural(count, "restart") if count else ""

  def _report(self):
    """Returns the last lines of the tasks that failed first, with process, host, time and end."""
    report = []
    for process in self._causes:
      lines = self._output.last_lines(process, _REPORT_LINES)
      is_first = self._restarts.count(process.name) and process not in self._failed
      if lines or is_first:
        report.append("last lines of %s%s, process %d on %s, which %s at %s:" % (
          "the first failure of " if is_first else "", process.name, process.pid,
          socket.gethostname(), self._end_of(process),
          time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(process.ended_at))))
        report.extend("  " + line for line in lines or ["(none)"])
    return report

  def _describe(self, process):
    text = "%s %s" % (process.name, self._end_of(process))
    if self._log_dir is not None:
      text += " (%s)" % log_path(self._log_dir, process.name)
    return text

  def _end_of(self, process):
    if process.exit_code < 0:
      return "was killed by %s" % signal_name(-process.exit_code)
    if process.exit_code == EXIT_PORT_TAKEN:
      return "found its port taken"
    between = (EXIT_RELEASED, EXIT_REFUSED)  # codes for the launcher alone
    return "ended with exit code %d" % (
      EXIT_FAILED if process.exit_code in between else process.exit_code)

  def _last_line(self, process):
    """Returns a failed task's last line, which says why it ended."""
    lines = [line for line in self._output.last_lines(process, 1) if line.strip()]
    return ": " + lines[0].strip() if lines and process.exit_code > 0 else ""

  def _look_for_taken_port(self, outcome):
    """Replaces the cause by a taken port, because of which others may have failed first."""
    taken = [process for process in self._failed if process.exit_code == EXIT_PORT_TAKEN
             and not self._restarts.count(process.name)]
    if not taken:
      return outcome
    text = "; ".join(self._describe(process) for process in taken)
    return _failure(text)._replace(port_taken=True)

  def _end(self, number, workers_limit):
    """Ends the running tasks: workers, then the others; by a signal, then by SIGKILL."""
    # The first signal to the launcher has led here, or finds that the tasks are being ended.
    self._handled = max(1, len(self._interrupts.received))
    self._start_none()
    for jobs, limit in ((("worker",), workers_limit), (None, TIMING.others_end_limit)):
      for process in self._running(jobs):
        self._server.signal_task(process, number)
      self._wait(self._have_ended(jobs), limit)
      again = len(self._interrupts.received) > self._handled
      if again:
        self._screen.line(_PREFIX + "a second signal: killing the remaining tasks")
        self._handled = len(self._interrupts.received)
        jobs = None
      for process in self._running(jobs):
        if not again:
          self._screen.line(_PREFIX + "%s did not end within %g s of %s: killed" % (
              process.name, limit, signal_name(number)))
        self._server.signal_task(process, signal.SIGKILL)
      self._wait(self._have_ended(jobs), TIMING.killed_limit)


def _job_of(name: str) -> str:
  return name.split()[0]


def _failure(text: str, report: Sequence[str] = ()) -> Outcome:
  """Returns the outcome of a failure."""
  return Outcome(EXIT_FAILED, text, report)


def _interrupted(number: int) -> Outcome:
  """Returns the outcome where signal `number` ended the launcher."""
  return Outcome(signal_exit_code(number), "ended by " + signal_name(number))
