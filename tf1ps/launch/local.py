"""Runs a whole job on this machine: starts its tasks, watches them, ends them.

1. One process imports TensorFlow (`fork_server.ForkServer`).
2. The launcher chooses ports, the caller makes the tasks for these addresses, and all are started.
3. The launcher waits for the ends of the workers, then of the ps, then of the evaluator. A worker
   that ends with 0 leaves the others alone. The ps and the evaluator have a limit.
4. If a task found its port taken (`EXIT_PORT_TAKEN`), the others are ended, and 2. begins again.
5. The first task that fails ends the job, and so does a signal to the launcher: first the workers,
   so that the chief can save the values of the ps, then the ps and the evaluator; with a signal,
   and killed after a limit. A second signal kills all at once.
6. The last line says how the job ended, and names the first failure, not its consequences.

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
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import (
  EXIT_FAILED,
  EXIT_PORT_TAKEN,
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


def run_tasks(make_tasks: Callable[[Dict[str, List[str]]], Sequence[LocalTask]],
              num_ps: int, num_workers: int, evaluator: bool, log_dir: Optional[str],
              preload: Sequence[str] = (), grace: float = 30.0, tries: int = 5,
              log: Callable[[str], None] = print, quiet: bool = True,
              keeps_logs: bool = True) -> Outcome:
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

  Returns:
    The `Outcome`.

  Raises:
    ValueError: arguments out of range, tasks other than the announced ones, or tasks that no other
      process could run. No process is left running.
    OSError: if `log_dir` cannot be written.
  """
  for name, value, least in (("num_ps", num_ps, 0), ("num_workers", num_workers, 1),
                             ("tries", tries, 1), ("grace", grace, 0)):
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
        attempt = _Attempt(server, interrupts, screen, log_dir, grace, keeps_logs)
        outcome = attempt.run(local_tasks)
        if outcome.port_taken and number < tries:
          screen.line(_PREFIX + "%s; starting all tasks again with new ports, try %d "
                      "of %d" % (outcome.text, number + 1, tries))
          outcome = None
  finally:
    screen.close()
    if log_dir is not None and not keeps_logs:
      _remove_logs(log_dir, outcome)
  for line in outcome.report:
    screen.line(_PREFIX + line)
  text = {0: "ok, " + _count(num_ps, num_workers, evaluator),
          EXIT_FAILED: "failed: " + outcome.text}.get(outcome.exit_code, outcome.text)
  if outcome.exit_code and log_dir is not None and os.path.isdir(log_dir):
    text += "" if log_dir in text else "; logs in %s" % log_dir
  screen.line(_PREFIX + "%s, %.1f s" % (text, time.monotonic() - started))
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


def _count(num_ps, num_workers, evaluator):
  """Returns "2 ps and 1 worker", "1 ps, 2 workers and 1 evaluator"."""
  parts = ["%d ps" % num_ps, "%d worker%s" % (num_workers, "" if num_workers == 1 else "s")]
  if evaluator:
    return "%s, %s and 1 evaluator" % tuple(parts)
  return " and ".join(parts)


class _Attempt:
  """One start of all tasks, to the end of all of them."""

  def __init__(self, server: ForkServer, interrupts: SignalQueue,
               screen: Screen, log_dir: Optional[str], grace: float, keeps_logs: bool):
    """Prepares a start; the arguments are the same in all starts of a job."""
    self._keeps_logs = keeps_logs
    self._server, self._interrupts, self._screen = server, interrupts, screen
    self._log_dir, self._grace = log_dir, grace
    self._processes: List[TaskProcess] = []
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
      self._start(local_tasks)
      outcome = self._watch()
      if outcome.exit_code == EXIT_FAILED:
        self._end(signal.SIGTERM, TIMING.workers_end_limit)
        outcome = self._look_for_taken_port(outcome)
      elif outcome.exit_code:
        # SIGHUP (the terminal has closed) counts as SIGTERM.
        first = self._interrupts.received[0]
        self._end(signal.SIGINT if first == signal.SIGINT else signal.SIGTERM,
                  TIMING.workers_end_limit_after_signal)
    except ForkServerLost as error:
      outcome = _failure(str(error))
    finally:
      if self._output is not None:
        self._output.close(TIMING.output_limit)
    return outcome._replace(report=() if outcome.port_taken else self._report())

  def _start(self, local_tasks):
    try:
      for task in local_tasks:
        self._processes.append(self._server.start_task(task))
      self._screen.line(_PREFIX + "started %s%s" % (
          ", ".join("%s (process %d)" % (process.name, process.pid)
                    for process in self._processes),
          self._say_logs()))
      self._output = Output(self._processes, self._screen, self._log_dir)
    except BaseException:
      for process in self._processes:
        os.close(process.output)
      raise

  def _say_logs(self):
    if self._log_dir is None:
      return ""
    return "; logs in %s%s" % (
      self._log_dir, "" if self._keeps_logs else ", removed after a good end without --log_dir")

  def _watch(self):
    """Waits until all tasks have ended, or until there is a reason to end them."""
    for jobs, limit in ((("worker",), None), (("ps",), self._grace),
                        (("evaluator",), TIMING.evaluator_limit)):
      ended = self._wait(self._have_ended(jobs, or_failed=True), limit)
      received, failed = self._interrupts.received, self._failed()
      # A user may signal every process of the job: tasks that end by that did not fail.
      if received and (failed or not ended):
        self._screen.line(_PREFIX + "%s: ending the workers, then the others" % (
            signal_name(received[0])))
        return _interrupted(received[0])
      if failed:
        self._wait(lambda: self._causes_of(self._failed()) or not self._running(("worker",)),
                   TIMING.cause_limit)
        return self._failed_outcome()
      if not ended:
        names = ", ".join(process.name for process in self._running(jobs))
        return _failure("%s did not end within %g s after the last %s" % (
            names, limit, "worker" if jobs == ("ps",) else "ps"))
    return Outcome(0, "ok")

  def _wait(self, done, limit=None):
    """Waits for a condition; False after `limit` seconds, or when another signal has arrived."""
    end = None if limit is None else time.monotonic() + limit
    while not done():
      left = None if end is None else end - time.monotonic()
      if len(self._interrupts.received) > self._handled or (left is not None and left <= 0):
        return False
      multiprocessing.connection.wait([self._server, self._interrupts], left)
      self._interrupts.take()
      self._server.take()
    return True

  def _running(self, jobs=None):
    return [process for process in self._processes
            if process.exit_code is None and (jobs is None or process.name.split()[0] in jobs)]

  def _have_ended(self, jobs=None, or_failed=False):
    """Returns the condition that no task of these jobs runs any more, or any task has failed."""
    return lambda: not self._running(jobs) or (or_failed and bool(self._failed()))

  def _failed(self):
    """Returns the tasks of this start that did not end with 0, in the order of their ends."""
    return [process for process in self._server.ended
            if process.exit_code and process in self._processes]

  def _causes_of(self, failed):
    """Returns the failed tasks that may be the cause."""
    return [process for process in failed if process.exit_code != EXIT_RELEASED]

  def _failed_outcome(self):
    """Returns the outcome after a failure, when the output of the failed tasks has been shown."""
    failed = self._failed()
    failed = sorted(self._causes_of(failed) or failed, key=lambda process: process.exit_code > 0)
    for process in failed:
      self._output.wait_end(process.name, TIMING.output_limit / len(failed))
    if self._running():
      self._screen.line(_PREFIX + "%s: ending the others" % (
        "; ".join(self._describe(process) for process in failed)))
    self._causes = failed
    return _failure("; ".join(
      self._describe(process) + self._last_line(process) for process in failed))

  def _report(self):
    """Returns the last lines of the tasks that failed first."""
    report = []
    for process in self._causes:
      lines = self._output.last_lines(process.name, _REPORT_LINES)
      if lines:
        report.append("last lines of %s:" % process.name)
        report.extend("  " + line for line in lines)
    return report

  def _describe(self, process):
    if process.exit_code < 0:
      text = "%s was killed by %s" % (process.name, signal_name(-process.exit_code))
    elif process.exit_code == EXIT_PORT_TAKEN:
      text = "%s found its port taken" % process.name
    else:
      code = EXIT_FAILED if process.exit_code == EXIT_RELEASED else process.exit_code
      text = "%s ended with exit code %d" % (process.name, code)
    if self._log_dir is not None:
      text += " (%s)" % log_path(self._log_dir, process.name)
    return text

  def _last_line(self, process):
    """Returns a failed task's last line, which says why it ended."""
    lines = [line for line in self._output.last_lines(process.name, 1) if line.strip()]
    return ": " + lines[0].strip() if lines and process.exit_code > 0 else ""

  def _look_for_taken_port(self, outcome):
    """Replaces the cause by a taken port, because of which others may have failed first."""
    taken = [process for process in self._failed() if process.exit_code == EXIT_PORT_TAKEN]
    if not taken:
      return outcome
    text = "; ".join(self._describe(process) for process in taken)
    return _failure(text)._replace(port_taken=True)

  def _end(self, number, workers_limit):
    """Ends the running tasks: workers, then the others; by a signal, then by SIGKILL."""
    # The first signal to the launcher has led here, or finds that the tasks are being ended.
    self._handled = max(1, len(self._interrupts.received))
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


def _failure(text: str, report: Sequence[str] = ()) -> Outcome:
  """Returns the outcome of a failure."""
  return Outcome(EXIT_FAILED, text, report)


def _interrupted(number: int) -> Outcome:
  """Returns the outcome where signal `number` ended the launcher."""
  return Outcome(signal_exit_code(number), "ended by " + signal_name(number))
