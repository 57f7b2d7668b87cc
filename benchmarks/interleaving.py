"""Compares systems in rounds in which each has its turn, so that other load affects all equally.

1. Each system is started, makes its first steps and is stopped (see jobs.py). A system that itself
   chooses how many steps a run makes continues until it has chosen the number.
2. In each round every system continues in turn, settles, and is measured for some seconds; each
   round begins with another system.
3. Between the turns, and while others start, a system that has been stopped for long makes a step:
   gRPC closes a connection on which a ping had no answer for a minute, even if the process is
   stopped.
4. All systems are ended.

A system that cannot run, or stops working, is lost, and the reason is noted; the others continue.
"""
from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Sequence

from benchmarks import global_steps, jobs, systems

FIRST_STEPS = 16  # the steps of a system before it counts as started
FIRST_SECONDS = 12.0  # seconds of single and of several steps, 3 each, and 4 at most for the copies
LONGEST_STAND = 15.0  # seconds that a system is stopped before it makes a step between the turns
LONGEST_TURN = 30.0  # seconds; with the longest stop, less than the one minute of a ping
_ROOM = 2000  # MB of memory that must be free to start another system

left_out: List[str] = []  # the systems that did not run, and why


class Skipped(RuntimeError):
  """A benchmark that cannot run here; the message says why."""


class Pace(NamedTuple):
  """How long systems are measured."""

  rounds: int = 5
  seconds: float = 3.0  # the length of a window
  settle: float = 1.0  # the seconds of a turn before the window
  # The seconds that a system gets after its first steps to choose the steps of a run.
  first_seconds: float = FIRST_SECONDS


def pace_of(args) -> Pace:
  """Returns the pace of a command line; with --quick no system has time to choose steps per run."""
  return Pace(args.rounds, args.seconds, args.settle,
              args.settle if args.quick else FIRST_SECONDS)


class Measured(NamedTuple):
  """The measurements of one system."""

  windows: List[jobs.Window]  # one window per round
  peak_mb: float  # the peak memory of all processes together
  ps_peak_mb: float  # the peak memory of the ps alone


class Compared(NamedTuple):
  """The outcome of a table's systems."""

  measured: Dict[str, Measured]  # by the system's name
  lost: Dict[str, str]  # why nothing was measured, by the system's name


def say(text: str) -> None:
  """Tells the user who runs the benchmarks about their progress, on standard error."""
  print("benchmarks: " + text, file=sys.stderr, flush=True)


def reason(error: jobs.JobError) -> str:
  """Returns one line that says why a system did not run."""
  return str(error).splitlines()[0]


def leave_out(error: jobs.JobError) -> None:
  """Logs, and remembers, that a system did not run."""
  say("left out: %s" % error)
  left_out.append("did not run: %s" % reason(error))


def compare(model: str, link, lines: Sequence[systems.System], pace: Pace) -> Compared:
  """Measures systems that train the same model.

  Args:
    model: the model's name.
    link: a `links.Link`.
    lines: the systems.
    pace: how long each system is measured.

  Returns:
    The measurements, and the systems that were lost.
  """
  folder = tempfile.mkdtemp(prefix="tf1ps-benchmarks-")
  stage = _Stage(pace.first_seconds)
  reader = None
  try:
    if any(line.peer == "tf1ps" for line in lines):
      reader = global_steps.Reader(link.prefixes["worker"], systems.environment())
    for line in lines:
      stage.start(line, systems.Run(model, folder, link), reader)
    windows: Dict[str, List[jobs.Window]] = {line.name: [] for line in lines}
    for number in range(pace.rounds):
      for job in turns(stage.running, number):
        if job in stage.running:
          with stage.losing(job):
            windows[job.system.name].append(measure(job, pace))
          stage.rouse()
      say("%s, %s: round %d of %d" % (model, link.name, number + 1, pace.rounds))
    measured = {}
    for job in list(stage.running):
      with stage.losing(job):
        measured[job.system.name] = Measured(
          windows[job.system.name], job.peak_mb(), job.peak_mb(("ps",)))
    return Compared(measured, stage.lost)
  finally:
    for job in stage.running:
      job.end()
    if reader is not None:
      reader.close()
    shutil.rmtree(folder, ignore_errors=True)


class _Stage:
  """The systems of a table.

  Attributes:
    running: the jobs that can have a turn; all are stopped except the job whose turn it is.
    lost: why other systems cannot run, by the system's name.
  """

  def __init__(self, first_seconds):
    self._first_seconds = first_seconds
    self.running: List[jobs.Job] = []
    self.lost: Dict[str, str] = {}

  def start(self, line, run, reader):
    """Starts a system, which makes its first steps and is stopped."""
    if _available_mb() < _ROOM:
      self._lose(line.name, jobs.JobError("%s: less than %d MB of memory are left; say --only" % (
        line.name, _ROOM)))
      return
    job = jobs.Job(line, run, reader)
    self.running.append(job)
    with self.losing(job):
      job.wait_for_steps(FIRST_STEPS, meanwhile=self.rouse)
      if line.finds_its_pace:
        until = time.monotonic() + self._first_seconds
        while time.monotonic() < until:
          job.check()
          self.rouse()
          time.sleep(0.1)
      job.stop()

  def rouse(self):
    """Continues each job that was stopped for long for a step, which keeps its connections open."""
    for job in list(self.running):
      if job.stood > LONGEST_STAND:
        with self.losing(job):
          job.go_on()
          job.wait_for_steps(job.steps()[0] + 1, LONGEST_TURN, every=0.01)
          job.stop()

  @contextlib.contextmanager
  def losing(self, job):
    """Removes a job from `running` if its system fails in the block."""
    try:
      yield
    except jobs.JobError as error:
      self._lose(job.system.name, error)
      self.running.remove(job)
      job.end()

  def _lose(self, name, error):
    self.lost[name] = reason(error)
    if isinstance(error, jobs.NotThereYet):
      say("not there yet: %s" % error)
    else:
      leave_out(error)


def turns(items: Sequence, number: int) -> list:
  """Returns the items in the order of a round; each round begins with another item.

  Args:
    items: the items that take turns.
    number: the number of the round, from 0.
  """
  first = number % max(1, len(items))
  return [*items[first:], *items[:first]]


def alone(lines: Sequence[systems.System], rounds: int, measure_one: Callable) -> Dict[str, list]:
  """Measures systems that are started again in each round, each while no other system runs.

  Args:
    lines: the systems.
    rounds: the number of rounds.
    measure_one: called with a system, a folder and a `global_steps.Reader`; returns a measurement,
      or raises `jobs.JobError`, and then the system is left out of this round.

  Returns:
    The list of measurements by the system's name; the list is empty if the system never ran.
  """
  found: Dict[str, list] = {line.name: [] for line in lines}
  folder = tempfile.mkdtemp(prefix="tf1ps-benchmarks-")
  reader = global_steps.Reader((), systems.environment())
  try:
    for number in range(rounds):
      for line in turns(lines, number):
        try:
          found[line.name].append(measure_one(line, folder, reader))
        except jobs.JobError as error:
          leave_out(error)
      say("round %d of %d" % (number + 1, rounds))
    return found
  finally:
    reader.close()
    shutil.rmtree(folder, ignore_errors=True)


def _available_mb():
  with open("/proc/meminfo") as text:
    return int(re.search(r"MemAvailable:\s+(\d+) kB", text.read()).group(1)) / 1000


def measure(job: jobs.Job, pace: Pace) -> jobs.Window:
  """Gives a stopped job its turn.

  A window begins and ends just after a step that was made in this turn. Some systems count many
  steps together, at intervals: a window that ended between two such counts would miss the steps
  since the last count. The last count before the turn has a time from before the stop, so a window
  that began with it would include the time of the stop.

  Args:
    job: the job; it is stopped afterwards.
    pace: how long it is measured, at least.
  """
  job.go_on()
  try:
    before = job.steps()[0]
    time.sleep(pace.settle)
    job.wait_for_steps(before + 1, LONGEST_TURN, every=0.01)
    first = job.sample()
    time.sleep(pace.seconds)
    job.wait_for_steps(job.steps()[0] + 1, LONGEST_TURN, every=0.01)
    job.check()
    return jobs.between(first, job.sample())
  finally:
    job.stop()
