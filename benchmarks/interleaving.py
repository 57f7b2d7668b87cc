"""Compares systems in rounds in which each has its turn, so that what else runs meets all alike.

1. Each system is started, makes its first steps and is stopped (see jobs.py).
2. In each round every system goes on in turn, settles, and is measured for some seconds; each round
   begins with another one.
3. All are ended.

A system that cannot run is left out, and said to be.
"""
from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Sequence

from benchmarks import global_steps, jobs, systems

FIRST_STEPS = 16  # before a system counts as started
_ROOM = 2000  # MB that must be there to start another one

left_out: List[str] = []  # what did not run, and why


class Skipped(RuntimeError):
  """A benchmark that cannot run here; the message says why."""


class Pace(NamedTuple):
  """How long things are measured."""

  rounds: int = 5
  seconds: float = 3.0  # of a window
  settle: float = 1.0  # seconds of a turn before it


class Measured(NamedTuple):
  """What was measured of one system."""

  windows: List[jobs.Window]  # one a round
  peak_mb: float  # of all processes together
  ps_peak_mb: float  # of the ps alone


def say(text: str) -> None:
  """Tells who runs the benchmarks what is going on, beside their output."""
  print("benchmarks: " + text, file=sys.stderr, flush=True)


def leave_out(error: jobs.JobError) -> None:
  """Says, and keeps, that a system did not run."""
  say("left out: %s" % error)
  left_out.append("did not run: %s" % str(error).splitlines()[0])


def compare(model: str, link, lines: Sequence[systems.System], pace: Pace,
            base: str) -> Dict[str, Measured]:
  """Measures systems that train the same model.

  Args:
    model: the model's name.
    link: a `links.Link`.
    lines: the systems.
    pace: how long.
    base: the name of the system without which there is nothing to compare with.

  Returns:
    What was measured, by the system's name, without those that did not run.

  Raises:
    RuntimeError: the base did not run.
  """
  folder = tempfile.mkdtemp(prefix="tf1ps-benchmarks-")
  run = systems.Run(model, folder, link)
  running: List[jobs.Job] = []
  reader = None
  try:
    if any(line.peer == "tf1ps" for line in lines):
      reader = global_steps.Reader(link.prefixes["worker"], systems.environment())
    for line in lines:
      job = _start(line, run, reader)
      if job is not None:
        running.append(job)
      elif line.name == base:
        raise RuntimeError("%s does not run on %s: there is nothing to compare with" % (
          base, model))
    windows = {job.system.name: [] for job in running}
    for number in range(pace.rounds):
      for job in turns(running, number):
        try:
          windows[job.system.name].append(measure(job, pace))
        except jobs.JobError as error:
          leave_out(error)
          windows.pop(job.system.name)
          job.end()
      running = [job for job in running if job.system.name in windows]
      say("%s, %s: round %d of %d" % (model, link.name, number + 1, pace.rounds))
    return {job.system.name: Measured(
      windows[job.system.name], job.peak_mb(), job.peak_mb(("ps",))) for job in running}
  finally:
    for job in running:
      job.end()
    if reader is not None:
      reader.close()
    shutil.rmtree(folder, ignore_errors=True)


def turns(items: Sequence, number: int) -> list:
  """These in the order of a round, of which each begins with another one.

  Args:
    items: what takes turns.
    number: of the round, from 0.
  """
  first = number % max(1, len(items))
  return [*items[first:], *items[:first]]


def alone(lines: Sequence[systems.System], rounds: int, measure_one: Callable) -> Dict[str, list]:
  """Measures systems that start anew in each round, each while no other one runs.

  Args:
    lines: the systems.
    rounds: how many.
    measure_one: called with a system, a folder and a `global_steps.Reader`; returns what it found,
      or raises `jobs.JobError`, and the system is left out of this round.

  Returns:
    What was found, by the system's name: a list, empty where it never ran.
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


def _start(line, run, reader):
  """A job that has made its first steps and is stopped; None if it cannot."""
  if _available_mb() < _ROOM:
    leave_out(jobs.JobError("%s: less than %d MB of memory are left; say --only" % (
      line.name, _ROOM)))
    return None
  job = jobs.Job(line, run, reader)
  try:
    job.wait_for_steps(FIRST_STEPS)
    job.stop()
    return job
  except jobs.NotThereYet as error:
    say("not there yet: %s" % error)
  except jobs.JobError as error:
    leave_out(error)
  except BaseException:
    job.end()
    raise
  job.end()
  return None


def _available_mb():
  with open("/proc/meminfo") as text:
    return int(re.search(r"MemAvailable:\s+(\d+) kB", text.read()).group(1)) / 1000


def measure(job: jobs.Job, pace: Pace) -> jobs.Window:
  """Gives a stopped job its turn.

  A window begins and ends after a step that was made in this turn. Some count many steps at once,
  now and then, and what was counted before the turn came with the time for which the job stood.

  Args:
    job: the job; it is stopped afterwards.
    pace: how long, at least.
  """
  job.go_on()
  try:
    before = job.steps()[0]
    time.sleep(pace.settle)
    job.wait_for_steps(before + 1, every=0.01)
    first = job.sample()
    time.sleep(pace.seconds)
    job.wait_for_steps(first.steps + 1, every=0.01)
    job.check()
    return jobs.between(first, job.sample())
  finally:
    job.stop()
