"""One start of all tasks of a job: started, watched, ended.

1. All tasks are started, their outputs read.
2. The launcher waits until the workers have ended, then for the ps, then for the evaluator. It
   stops waiting when a task fails, when a limit has passed, or when a signal asks it to end.
3. What still runs is ended: first the workers, so that the chief can save what the ps hold, then
   ps and evaluator; politely, and killed after a limit.

A task that fails makes others fail: the first one is the cause. Of those that the launcher saw at
once, one that a signal killed comes before one that chose its exit code. One that ended as the
chief said that the job had failed (`EXIT_RELEASED`) is never the cause where another can be: the
chief, or whom it means, may be on its way out, and has some seconds to say why.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import time
from typing import List, NamedTuple, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import (
  EXIT_FAILED,
  EXIT_PORT_TAKEN,
  EXIT_RELEASED,
  TIMING,
  signal_exit_code,
  signal_name,
)
from tf1ps.launch import fork_server, tasks
from tf1ps.launch import output as output_lib
from tf1ps.launch import screen as screen_lib

# How many of a failed task's last lines are shown again at the end.
_REPORT_LINES = 10

PREFIX = "tf1ps-local: "


class Outcome(NamedTuple):
  """How one start of all tasks ended."""
  # 0; 1 for a failure; 128 + n after signal n to the launcher.
  exit_code: int
  # How it ended: "ended by SIGINT"; for a failure, what failed.
  text: str
  # For a failure, the last lines of the tasks that failed first, ready to be shown.
  report: Sequence[str] = ()
  # Whether a task found its port taken, so that another try makes sense.
  port_taken: bool = False


class Attempt(object):
  """The tasks of one start, and what becomes of them."""

  def __init__(self, server: fork_server.ForkServer, interrupts: SignalQueue,
               screen: screen_lib.Screen, log_dir: Optional[str], grace: float):
    """Takes what all starts of a job share; the arguments are those of `run_local`."""
    self._server = server
    self._interrupts = interrupts
    self._screen = screen
    self._log_dir = log_dir
    self._grace = grace
    self._processes: List[tasks.TaskProcess] = []
    self._output: Optional[output_lib.Output] = None
    # The tasks that failed first.
    self._causes: List[tasks.TaskProcess] = []
    # Signals that are not news: they have led to what is being done already.
    self._obeyed = 0

  def run(self, local_tasks: Sequence[tasks.LocalTask]) -> Outcome:
    """Runs the tasks. None of them runs any more when this returns an outcome of any kind.

    Args:
      local_tasks: the `LocalTask`s; a name's first word is its job.

    Returns:
      An `Outcome`.

    Raises:
      ValueError, OSError: as of `ForkServer.start_task`, and if a log file cannot be written.
    """
    try:
      self._start(local_tasks)
      outcome = self._watch()
      if outcome.exit_code == EXIT_FAILED:
        self._end(signal.SIGTERM, TIMING.workers_end_limit)
        outcome = self._look_for_taken_port(outcome)
      elif outcome.exit_code:
        # Tasks know SIGINT and SIGTERM; a terminal that is gone means the latter.
        first = self._interrupts.received[0]
        self._end(signal.SIGINT if first == signal.SIGINT else signal.SIGTERM,
                  TIMING.workers_end_limit_after_signal)
    except fork_server.ForkServerLost as error:
      outcome = failure(str(error))
    finally:
      if self._output is not None:
        self._output.close(TIMING.output_limit)
    return outcome._replace(report=() if outcome.port_taken else self._report())

  def _start(self, local_tasks):
    try:
      for task in local_tasks:
        self._processes.append(self._server.start_task(task))
      self._screen.line(PREFIX + "started %s%s" % (
          ", ".join("%s (process %d)" % (process.name, process.pid)
                    for process in self._processes),
          "" if self._log_dir is None else "; logs in %s" % self._log_dir))
      self._output = output_lib.Output(self._processes, self._screen, self._log_dir)
    except BaseException:
      for process in self._processes:
        os.close(process.output)
      raise

  def _watch(self):
    """Waits until all tasks have ended, or until there is a reason to end them."""
    for jobs, limit in ((("worker",), None), (("ps",), self._grace),
                        (("evaluator",), TIMING.evaluator_limit)):
      gone = self._wait(self._gone(jobs, or_failed=True), limit)
      received, failed = self._interrupts.received, self._failed()
      # Somebody may signal every process of the job: tasks that end by that did not fail.
      if received and (failed or not gone):
        self._screen.line(PREFIX + "%s: ending the workers, then the others" % (
            signal_name(received[0])))
        return interrupted(received[0])
      if failed:
        self._wait(lambda: self._causes_of(self._failed()) or not self._running(("worker",)),
                   TIMING.cause_limit)
        return self._failure()
      if not gone:
        names = ", ".join(process.name for process in self._running(jobs))
        return failure("%s did not leave within %g s after the last %s" % (
            names, limit, "worker" if jobs == ("ps",) else "ps"))
    return Outcome(0, "ok")

  def _wait(self, done, limit=None):
    """Waits for a condition; False after `limit` seconds, or when another signal has come."""
    end = None if limit is None else time.monotonic() + limit
    while not done():
      left = None if end is None else end - time.monotonic()
      if len(self._interrupts.received) > self._obeyed or (left is not None and left <= 0):
        return False
      multiprocessing.connection.wait([self._server, self._interrupts], left)
      self._interrupts.take()
      self._server.take()
    return True

  def _running(self, jobs=None):
    return [process for process in self._processes
            if process.exit_code is None and (jobs is None or process.name.split()[0] in jobs)]

  def _gone(self, jobs=None, or_failed=False):
    """A condition: that no task of these jobs runs any more, or that any task has failed."""
    return lambda: not self._running(jobs) or (or_failed and bool(self._failed()))

  def _failed(self):
    """The tasks of this start that ended with another code than 0, in order of their ends."""
    return [process for process in self._server.ended
            if process.exit_code and process in self._processes]

  def _causes_of(self, failed):
    """Those that may be the cause."""
    return [process for process in failed if process.exit_code != EXIT_RELEASED]

  def _failure(self):
    """The outcome where tasks have failed; their output comes before the word of it."""
    failed = self._failed()
    failed = sorted(self._causes_of(failed) or failed, key=lambda process: process.exit_code > 0)
    for process in failed:
      self._output.wait_end(process.name, TIMING.output_limit / len(failed))
    if self._running():
      self._screen.line(PREFIX + "%s: ending the others" % (
        "; ".join(self._describe(process) for process in failed)))
    self._causes = failed
    return failure("; ".join(
      self._describe(process) + self._last_word(process) for process in failed))

  def _report(self):
    """The last lines of the tasks that failed first."""
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
      said = {EXIT_RELEASED: EXIT_FAILED}
      text = "%s ended with exit code %d" % (
        process.name, said.get(process.exit_code, process.exit_code))
    if self._log_dir is not None:
      text += " (%s)" % output_lib.log_path(self._log_dir, process.name)
    return text

  def _last_word(self, process):
    """Why a task ended, as its own last line tells it."""
    lines = [line for line in self._output.last_lines(process.name, 1) if line.strip()]
    return ": " + lines[0].strip() if lines and process.exit_code > 0 else ""

  def _look_for_taken_port(self, outcome):
    """Where a port was taken, others may have failed first because of it."""
    taken = [process for process in self._failed()
             if process.exit_code == EXIT_PORT_TAKEN]
    if not taken:
      return outcome
    text = "; ".join(self._describe(process) for process in taken)
    return failure(text)._replace(port_taken=True)

  def _end(self, number, workers_limit):
    """Ends what still runs: workers, then the others; signalled, then killed."""
    # The first signal to the launcher is what ends the tasks, or finds that they are being ended.
    self._obeyed = max(1, len(self._interrupts.received))
    for jobs, limit in ((("worker",), workers_limit), (None, TIMING.others_end_limit)):
      for process in self._running(jobs):
        self._server.signal_task(process, number)
      self._wait(self._gone(jobs), limit)
      again = len(self._interrupts.received) > self._obeyed
      if again:
        self._screen.line(PREFIX + "a second signal: killing what is left")
        self._obeyed = len(self._interrupts.received)
        jobs = None
      for process in self._running(jobs):
        if not again:
          self._screen.line(PREFIX + "%s did not leave within %g s of %s: killed" % (
              process.name, limit, signal_name(number)))
        self._server.signal_task(process, signal.SIGKILL)
      self._wait(self._gone(jobs), TIMING.killed_limit)


def failure(text: str, report: Sequence[str] = ()) -> Outcome:
  """Returns the outcome of a failure, for what `text` says."""
  return Outcome(EXIT_FAILED, text, report)


def interrupted(number: int) -> Outcome:
  """Returns the outcome where signal `number` ended the launcher."""
  return Outcome(signal_exit_code(number), "ended by " + signal_name(number))
