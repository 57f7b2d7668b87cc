"""Measures jobs on this machine in turns, so that other load affects all jobs equally.

1. `Trials.start` starts jobs, a few at a time. Each job makes its first steps and is then held:
   SIGSTOP stops its processes.
2. `Trials.measure` gives each job a turn in each round: the job continues and settles, and then its
   steps are counted for some seconds.
3. The end of the context kills all jobs.

A job that fails or makes no step is lost, and its reason is noted; the other jobs continue. The
workers note their steps in files (training/step_log.py).
"""

from __future__ import annotations

import signal
import statistics
import time
from typing import Callable, Dict, List, NamedTuple, Sequence

from tf1ps.compat import TIMING
from tf1ps.launch.fork_server import ForkServer, LocalTask, TaskProcess
from tf1ps.launch.output import Output, Screen
from tf1ps.training import NotedRun, read_step_log

_READY_RUNS = 3  # the runs that a job makes before it is held for the first time
_AT_ONCE = 3  # jobs that start at the same time
_LINES = 3  # the last lines of a failed task to look at
_SETTLE = 0.3  # seconds of a turn that do not count
_WINDOW_RUNS = 3  # a turn has more runs than this


class Trial(NamedTuple):
  """A job to measure."""

  name: str
  tasks: Sequence[LocalTask]
  logs: Sequence[str]  # the files of the workers whose steps count
  run_steps: int = 1  # the steps of a run


class Trials:
  """The jobs that take turns.

  Attributes:
    rates: {name: the steps per second of each turn}.
    lost: {name: the reason}.
    late: the names of the jobs that were not ready in time.
    start_seconds: the mean seconds of a job's start, over the jobs that have become ready.
  """

  def __init__(self, preload: Sequence[str], quiet: bool = True):
    """Starts the process that imports `preload` for all tasks."""
    self._server = ForkServer(preload, quiet)
    self._output = Output([], Screen(lambda line: None), None)
    self._trials: Dict[str, Trial] = {}
    self._processes: Dict[str, List[TaskProcess]] = {}
    self.rates: Dict[str, List[float]] = {}
    self.lost: Dict[str, str] = {}
    self.late: List[str] = []
    self.start_seconds = 0.0

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._server.close()
    self._output.close(TIMING.output_limit)

  def start(self, makers: Sequence[Callable[[], Trial]], until: float) -> None:
    """Starts jobs, and holds each when it has made its first steps.

    Args:
      makers: functions that each make a `Trial` right before its start, because it chooses ports.
      until: the moment, by `time.monotonic`, at which a job that is not ready is lost.
    """
    waiting, starting, began, ready = list(makers), [], time.monotonic(), 0
    while waiting or starting:
      while waiting and len(starting) < _AT_ONCE:
        starting.append(self._start(waiting.pop(0)()))
      late = time.monotonic() >= until
      for trial in list(starting):
        if self._check(trial) and _is_ready(trial):
          self._signal(trial.name, signal.SIGSTOP)
          ready += 1
          self.start_seconds = (time.monotonic() - began) / ready
        elif trial.name not in self.lost and late:
          self._lose(trial.name, "it was not ready in time")
          self.late.append(trial.name)
        elif trial.name not in self.lost:
          continue
        starting.remove(trial)
      if late:
        for maker in waiting:
          trial = maker()
          self._trials[trial.name] = trial
          self.lost[trial.name] = "no time was left to start it"
          self.late.append(trial.name)
        waiting = []
      time.sleep(TIMING.local_poll_interval)

  def measure(self, names: Sequence[str], rounds: int, seconds: float, until: float) -> int:
    """Measures jobs in rounds, each of which begins with another job; returns the number of rounds.

    Args:
      names: the jobs; lost jobs are left out.
      rounds: the number of rounds, if there is time for them.
      seconds: the length of each turn; a turn is longer if a job needs longer for a few runs.
      until: the moment at which no further round begins.
    """
    took = 0.0
    for number in range(rounds):
      began = time.monotonic()
      if began + took > until:
        return number
      order = [name for name in names if name not in self.lost]
      first = number % max(1, len(order))
      for name in order[first:] + order[:first]:
        self._turn(self._trials[name], seconds, until)
      took = time.monotonic() - began
    return rounds

  def forget(self, names: Sequence[str]) -> None:
    """Ends jobs that are not measured any more."""
    for name in names:
      self._signal(name, signal.SIGKILL)

  def runs(self, name: str) -> List[NotedRun]:
    """The runs of a job's first worker."""
    return read_step_log(self._trials[name].logs[0])

  def _start(self, trial):
    self._trials[trial.name], self.rates[trial.name] = trial, []
    processes = self._processes[trial.name] = []
    for task in trial.tasks:
      processes.append(self._server.start_task(task))
      self._output.add(processes[-1])
    return trial

  def _turn(self, trial, seconds, until):
    self._signal(trial.name, signal.SIGCONT)
    try:
      time.sleep(_SETTLE)
      first = time.monotonic()
      limit = max(until, first + seconds)
      while self._check(trial):
        now = time.monotonic()
        windows = [_window(path, first, now) for path in trial.logs]
        if now >= first + seconds and min(len(runs) for runs in windows) > _WINDOW_RUNS:
          self.rates[trial.name].append(sum(map(_rate, windows)))
          return
        if now >= limit:
          self._lose(trial.name, "it made no step in its turn")
          return
        time.sleep(min(seconds, TIMING.local_poll_interval))
    finally:
      self._signal(trial.name, signal.SIGSTOP)

  def _check(self, trial) -> bool:
    """Returns whether all tasks of a job run; otherwise the job is lost."""
    self._server.take()
    if trial.name in self.lost:
      return False
    for process in self._processes[trial.name]:
      if process.exit_code is not None:
        self._output.wait_end(process, TIMING.output_limit)
        lines = self._output.last_lines(process, _LINES)
        self._lose(trial.name, "%s ended with %d%s" % (
          process.name, process.exit_code, ": " + lines[-1] if lines else ""))
        return False
    return True

  def _lose(self, name, reason):
    self.lost[name] = reason
    self._signal(name, signal.SIGKILL)

  def _signal(self, name, number):
    for process in self._processes.get(name, ()):
      self._server.signal_task(process, number)


def _is_ready(trial) -> bool:
  """Whether each worker has made some runs of the right number of steps."""
  for path in trial.logs:
    runs = read_step_log(path)
    steps = [after.steps - before.steps for before, after in zip(runs, runs[1:])]
    if len(steps) < _READY_RUNS or min(steps[-_READY_RUNS:]) < trial.run_steps:
      return False
  return True


def _window(path, first, last) -> List[NotedRun]:
  return [run for run in read_step_log(path) if first <= run.at <= last]


def _rate(runs) -> float:
  return (runs[-1].steps - runs[0].steps) / max(runs[-1].at - runs[0].at, 1e-9)


def mean_loss(runs: Sequence[NotedRun], examples: int) -> float:
  """Returns the mean loss of the second half of a worker's first examples."""
  losses = [run.loss for run in runs if examples / 2 <= run.examples <= examples]
  return statistics.mean(losses) if losses else float("nan")


