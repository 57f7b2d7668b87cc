"""Watches the tasks of a job from their start until all have ended, on any backend.

The states of a task:

  state       it begins                            next state
  running     `Backend.start_task`                 ended, failed or restarting
  restarting  a failure that restarts.py forgives  running after a pause; ended when it is spare
  ended       exit code 0; or a spare task         -
  failed      another end                          -

A ps is spare once all workers have ended with 0, in a job with restarts.

1. The workers end first, then the ps, then the evaluator. A worker that ends with 0 does not affect
   the other tasks. The ps must end within a limit after the last worker, and the evaluator within a
   limit after the last ps. If a program of tf1ps ends later, the job fails. If another program is
   late, such as a ps of plain TensorFlow, the launcher ends it.
2. The first failed task ends the job, and so does a signal to the launcher. The launcher first ends
   the workers, so that the chief can save the values of the ps, and then the other tasks. It ends
   them by a signal, and after a limit by SIGKILL. A second signal kills all tasks immediately.
3. The outcome names the first failure, not its consequences. Among failures seen together, it names
   a task that was killed. It names a task with `EXIT_RELEASED` (the chief has reported to the task
   that the job failed) only if no other task fails within some seconds.
4. The report is the traceback of the task that failed first, once. Without a traceback, it is the
   task's last lines, unless they are just above already. After a crash loop, they are the lines of
   the first failure.
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Dict, List, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import (
  EXIT_FAILED,
  EXIT_PORT_TAKEN,
  EXIT_RELEASED,
  TIMING,
  signal_exit_code,
  signal_name,
)
from tf1ps.launch.fork_server import ForkServerLost
from tf1ps.launch.job import Backend, Job, JobOutcome, TaskProcess, plural
from tf1ps.launch.output import Output, Screen, log_path
from tf1ps.launch.restarts import Restarts

_REPORT_LINES = 10  # the last lines of a failed task that are shown again at the end


def failure(text: str, report: Sequence[str] = ()) -> JobOutcome:
  """Returns the outcome of a failure."""
  return JobOutcome(EXIT_FAILED, text, report)


def interrupted(interrupts: SignalQueue) -> JobOutcome:
  """Returns the outcome of a job whose launcher was ended by a signal."""
  number = interrupts.received[0]
  return JobOutcome(signal_exit_code(number), "ended by " + signal_name(number))


def show_end(screen: Screen, prefix: str, outcome: JobOutcome, text: str, began: float,
             shows_report: bool = True) -> None:
  """Shows the report of a job, and `text` with the seconds since `began` as its last line."""
  failed = outcome.exit_code
  for line in outcome.report if shows_report else ():
    screen.line(prefix + line, "ERROR" if failed else "WARNING")
  screen.line("%s%s, %.1f s" % (prefix, text, time.monotonic() - began),
              "ERROR" if failed else "INFO")


class Watch:
  """The tasks of a job from their start until all have ended."""

  def __init__(self, job: Job, backend: Backend, interrupts: SignalQueue, screen: Screen):
    self._job, self._backend = job, backend
    self._interrupts, self._screen = interrupts, screen
    self._tasks = {task.name: task for task in job.tasks}
    self._current: Dict[str, TaskProcess] = {}  # the last start of each task
    self._restarts = Restarts(job.max_restarts)
    self._due: Dict[str, float] = {}  # when a task that is restarting is started again
    self._failed: List[TaskProcess] = []  # in the order of their ends
    self._seen = len(backend.ended)
    self._is_ending = False
    self._output: Optional[Output] = None
    self._causes: List[TaskProcess] = []  # the tasks that failed first
    self._handled = 0  # how many of the signals have been acted on

  def run(self) -> JobOutcome:
    """Runs the tasks; when this returns, all tasks have ended, or will end with their backend.

    Raises:
      OSError: a task cannot be started, or a log file cannot be written.
    """
    try:
      self._start()
      outcome = self._watch()
      if outcome.exit_code == EXIT_FAILED:
        self._end(signal.SIGTERM, self._job.end_limit)
        outcome = self._look_for_taken_port(outcome)
      elif outcome.exit_code:
        # SIGHUP (the terminal has closed) counts as SIGTERM.
        first = self._interrupts.received[0]
        self._end(signal.SIGINT if first == signal.SIGINT else signal.SIGTERM,
                  self._job.signalled_limit)
    except ForkServerLost as error:
      outcome = failure(str(error))
    finally:
      if self._output is not None:
        self._output.close(self._job.output_limit)
    report, is_shown = ((), True) if outcome.port_taken else self._report(outcome)
    return outcome._replace(report=report, is_shown=is_shown, restarts=self._restarts.total)

  def _say(self, text):
    self._screen.line(self._job.prefix + text)

  def _start(self):
    try:
      for name, task in self._tasks.items():
        self._current[name] = self._backend.start_task(task)
        self._restarts.note_start(name)
      processes = list(self._current.values())
      logs = "" if self._job.log_dir is None else "; logs in %s%s" % (
        self._job.log_dir, "" if self._job.keeps_logs else " until a good end")
      self._say("started %s%s" % (", ".join(process.place for process in processes), logs))
      self._output = Output(
        processes, self._screen, self._job.log_dir, self._job.prefix, self._job.folds)
    except BaseException:
      for process in self._current.values():
        os.close(process.output)
      raise

  def _start_due(self):
    for name in [name for name, moment in self._due.items() if moment <= time.monotonic()]:
      if self._interrupts.received:
        return
      del self._due[name]
      self._current[name] = self._backend.start_task(self._tasks[name])
      self._restarts.note_start(name)
      self._output.add(self._current[name])

  def _start_none(self):
    self._is_ending = True
    self._due.clear()

  def _watch(self):
    for jobs, limit in ((("worker",), None), (("ps",), self._job.grace),
                        (("evaluator",), TIMING.evaluator_limit)):
      if jobs == ("ps",):
        self._due = {name: moment for name, moment in self._due.items() if _job_of(name) != "ps"}
      ended = self._wait(self._have_ended(jobs, or_failed=True), limit)
      # A user may signal every process of the job: tasks that end by this signal did not fail. The
      # launcher may notice the ends of the tasks before it gets the signal.
      if self._failed and all(process.was_ended_by_signal for process in self._failed):
        self._wait(lambda: False, TIMING.common_signal_limit)
      if self._interrupts.received and (self._failed or not ended):
        self._say("%s: ending the workers, then the others" % (
          signal_name(self._interrupts.received[0])))
        return interrupted(self._interrupts)
      if self._failed:
        self._start_none()
        self._wait(lambda: self._find_causes() or not self._running(("worker",)),
                   TIMING.cause_limit)
        return self._failed_outcome()
      late = self._running(jobs)
      away = [name for name in self._due if _job_of(name) in jobs]
      if away and not late:
        return failure("%s did not come back within %g s after the last ps" % (
          " and ".join(away), limit))
      # A ps that was started again may have missed its release, and has no state to keep.
      if late and self._job.is_ours and not (
          jobs == ("ps",) and all(self._restarts.count(process.name) for process in late)):
        return failure("%s did not end within %g s after the last %s" % (
          _names(late), limit, "worker" if jobs == ("ps",) else "ps"))
      if late and self._running(("evaluator",)):
        self._say_late(late)
        for process in late:
          self._backend.signal_task(process, signal.SIGTERM)
    late = self._running()
    if late:
      self._say_late(late)
      self._end(signal.SIGTERM, self._job.end_limit)
      if self._interrupts.received:
        return interrupted(self._interrupts)
    return JobOutcome(0, "ok")

  def _say_late(self, late):
    self._say("the workers have ended with 0, and %s still runs: ending it" % _names(late))

  def _wait(self, done, limit=None):
    """Waits for a condition; False after `limit` seconds, or when another signal has arrived."""
    end = None if limit is None else time.monotonic() + limit
    while True:
      self._start_due()
      self._take_ended()  # including tasks that ended while a task was started
      if done():
        return True
      if len(self._interrupts.received) > self._handled or (
          end is not None and time.monotonic() >= end):
        return False
      moments = list(self._due.values()) + ([] if end is None else [end])
      self._backend.wait(
        self._interrupts, max(0.0, min(moments) - time.monotonic()) if moments else None)
      self._interrupts.take()

  def _take_ended(self):
    self._backend.take()
    ended, self._seen = self._backend.ended[self._seen:], len(self._backend.ended)
    for process in _killed_first(ended):
      if process.exit_code:
        self._note_failure(process)

  def _note_failure(self, process):
    """Plans a failed task's restart after a pause, or adds the task to `_failed`."""
    pause = None
    if not self._is_ending and not self._interrupts.received:
      if self._is_spare(process):
        self._say("%s, after the workers have ended with 0: no restart" % self._describe(process))
        return
      pause = self._restarts.pause_after(process)
    if pause is None:
      self._failed.append(process)
      return
    self._output.wait_end(process, self._job.output_limit)
    self._output.show_held(process)
    self._say("%s%s: %s" % (self._describe(process), self._last_line(process),
                            self._restarts.say(process.name, pause)))
    self._due[process.name] = time.monotonic() + pause

  def _is_spare(self, process):
    return self._restarts.are_allowed and _job_of(process.name) == "ps" and not any(
      _job_of(other.name) == "worker" and other.exit_code != 0 for other in self._current.values())

  def _running(self, jobs=None):
    return [process for process in self._current.values()
            if process.exit_code is None and (jobs is None or _job_of(process.name) in jobs)]

  def _have_ended(self, jobs=None, or_failed=False):
    """Returns the condition that no task of these jobs is left, or any task has failed for good."""
    return lambda: (or_failed and bool(self._failed)) or not self._running(jobs) and not any(
      jobs is None or _job_of(name) in jobs for name in self._due)

  def _find_causes(self):
    return [process for process in self._failed
            if not self._job.is_ours or process.exit_code != EXIT_RELEASED]

  def _failed_outcome(self):
    failed = _killed_first(self._find_causes() or self._failed)
    self._output.begin_end()
    for process in failed:
      self._output.wait_end(process, self._job.output_limit / len(failed))
    if self._running():
      self._say("%s: ending the others" % "; ".join(map(self._describe, failed)))
    self._causes = [self._restarts.first_failure(process) for process in failed]
    texts, reasons = [], {""}
    for process in failed:
      reason, count = self._last_line(process), self._restarts.count(process.name)
      texts.append("%s%s%s" % (self._describe(process), "" if reason in reasons else reason,
                               ", after " + plural(count, "restart") if count else ""))
      reasons.add(reason)
    return failure("; ".join(texts))

  def _report(self, outcome):
    """Returns the report, and whether its lines were shown.

    The last line of a traceback is part of the job's last line.
    """
    is_failed = outcome.exit_code and self._failed
    report = [] if is_failed or self._output is None else self._output.warnings()
    tracebacks, is_shown = [], bool(self._causes) and self._job.is_ours
    self._show_others()
    for process in self._causes:
      held = self._output.take_held(process)
      lines = self._output.last_lines(process, _REPORT_LINES)
      is_first = self._restarts.count(process.name) and process not in self._failed
      if held:
        held = held[:-1] if self._last_line(process) else held
        if held not in tracebacks:
          tracebacks.append(held)
          report += ["%s: %s" % (process.name, held[0]), *held[1:]]
      elif lines or is_first:
        report.append("last lines of %s%s:" % (
          "the first failure of " if is_first else "", process.title))
        report.extend("  " + line for line in lines or ["(none)"])
      is_shown = is_shown and not (held or is_first) and self._output.is_on_screen(process)
    return report, is_shown

  def _show_others(self):
    """Shows the held-back last lines of the tasks that failed later, for another reason."""
    reasons = {self._last_line(process) for process in self._causes}
    for process in self._causes and self._failed:
      if process in self._causes:
        continue
      if self._restarts.count(process.name):
        self._output.show_held(process)
      held = self._output.take_held(process)
      if held and self._last_line(process) not in reasons:
        self._screen.task_line(process.name, held[-1])

  def _describe(self, process):
    log_dir = self._job.log_dir
    return process.end + ("" if log_dir is None else " (%s)" % log_path(log_dir, process.name))

  def _last_line(self, process):
    """Returns the reason in a failed task's last line, without its name and its end."""
    lines = [line for line in self._output.last_lines(process, 1) if line.strip()]
    if not lines or process.exit_code < 0 or not self._job.is_ours:
      return ""
    match = re.match(r"(?:%s(?: \(chief\))?: )?(.*?)(?:, exit code \d+)?$" % process.name,
                     lines[0].strip())
    return ": " + match.group(1)

  def _look_for_taken_port(self, outcome):
    """Replaces the cause by a taken port, which may have made other tasks fail first."""
    taken = [process for process in self._failed if process.exit_code == EXIT_PORT_TAKEN
             and self._job.is_ours and not self._restarts.count(process.name)]
    if not taken:
      return outcome
    return failure("; ".join(map(self._describe, taken)))._replace(port_taken=True)

  def _end(self, number, workers_limit):
    """Ends the running tasks: workers, then the others; by a signal, then by SIGKILL."""
    # The first signal to the launcher has led here, or comes while the tasks are being ended.
    self._handled = max(1, len(self._interrupts.received))
    self._start_none()
    for jobs, limit in ((("worker",), workers_limit), (None, self._job.others_limit)):
      for process in self._running(jobs):
        self._backend.signal_task(process, number)
      self._wait(self._have_ended(jobs), limit)
      again = len(self._interrupts.received) > self._handled
      if again:
        self._say("a second signal: killing the remaining tasks")
        self._handled = len(self._interrupts.received)
        jobs = None
      for process in self._running(jobs):
        if not again:
          self._say("%s did not end within %g s of %s: killed" % (
            process.name, limit, signal_name(number)))
        self._backend.signal_task(process, signal.SIGKILL)
      self._wait(self._have_ended(jobs), self._job.killed_limit)


def _job_of(name: str) -> str:
  return name.split()[0]


def _names(processes) -> str:
  return ", ".join(process.name for process in processes)


def _killed_first(processes) -> List[TaskProcess]:
  return sorted(processes, key=lambda process: not process.was_killed)
