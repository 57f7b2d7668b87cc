"""A job on this machine whose tasks a test starts, stops, kills and starts again as it likes.

A task is either one of tf1ps's programs, tf1ps-ps or tf1ps-worker, with the program
tests/programs/line.py to train, or (`trainer`) a legacy trainer with a loop of its own.
"""
from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import NamedTuple

from tests import clock_tasks, harness
from tests.training import legacy_trainer
from tf1ps.checkpoint import checkpoints
from tf1ps.cli import ps, worker
from tf1ps.training import worker as training_worker

PROGRAM = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "line.py")


class Job(object):
  """The tasks of one job, at addresses of their own."""

  def __init__(self, start, num_ps=1, num_workers=2, flags=(), heartbeat_timeout=5.0,
               end_timeout=300.0, **trainer_options):
    """Chooses the addresses.

    Args:
      start: the fixture of that name.
      num_ps: how many ps.
      num_workers: how many workers.
      flags: of every worker.
      heartbeat_timeout: of every task; so long that on a busy machine nobody is lost by mistake.
      end_timeout: of the programs: how long the chief waits for a worker that makes no step.
      **trainer_options: of every legacy trainer, see `legacy_trainer.Options`.
    """
    addresses = harness.addresses(num_ps + num_workers)
    self.jobs = {"ps": addresses[:num_ps], "worker": addresses[num_ps:]}
    self._start, self._end_timeout = start, end_timeout
    self._flags = list(flags)
    self._limits = ["--heartbeat_timeout=%g" % heartbeat_timeout, "--start_timeout=60"]
    self._options = legacy_trainer.Options(heartbeat_timeout=heartbeat_timeout, **trainer_options)

  def ps(self, index=0, *flags):
    """Starts tf1ps-ps; returns its `harness.Task`."""
    return self._program("ps", ps.run, index, flags)

  def watching_ps(self, index=0, *flags):
    """Starts tf1ps-ps that says what it sees, and whose clocks are moved by `clock_tasks`."""
    return self._program("ps", functools.partial(clock_tasks.watch, ps.run), index, flags)

  def worker(self, index=0, *flags):
    """Starts tf1ps-worker; worker 0 is the chief."""
    return self._program("worker", worker.run, index, [PROGRAM, *self._flags, *flags])

  def all(self, *flags):
    """Starts every ps and every worker; returns the ps and the workers."""
    return ([self.ps(index) for index in range(len(self.jobs["ps"]))],
            [self.worker(index, *flags) for index in range(len(self.jobs["worker"]))])

  def trainer(self, index=0, **options):
    """Starts a legacy trainer as a worker."""
    return self._start("trainer %d" % index, legacy_trainer.train, self.jobs, index,
                       self._options._replace(**options))

  def trainer_ps(self, index=0, **server_arguments):
    """Starts a legacy trainer as a ps."""
    return self._start("trainer's ps %d" % index, legacy_trainer.serve, self.jobs, index,
                       self._options, server_arguments)

  def _program(self, job, run, index, flags):
    hosts = ["--%s_hosts=%s" % (name, ",".join(there))
             for name, there in self.jobs.items() if there]
    return self._start("%s %d" % (job, index), with_end_timeout, self._end_timeout, run,
                       [*hosts, "--task_index=%d" % index, *self._limits, *flags], False)


def with_end_timeout(seconds, run, *args):
  """Runs a program whose chief waits so long for a worker that makes no step."""
  training_worker.TIMING = training_worker.TIMING._replace(end_timeout=seconds)
  return run(*args)


class Step(NamedTuple):
  """A step that a legacy trainer has printed."""
  number: int  # the global step
  even: int
  odd: int
  time: float


def steps(task):
  """The steps that a legacy trainer has printed so far, in order."""
  lines = [line.split() for line in list(task.lines) if line.startswith("step ")]
  return [Step(int(line[1]), int(line[2]), int(line[3]), float(line[5])) for line in lines
          if len(line) == 6]


def wait_for_step(task, number):
  """Waits until a legacy trainer has seen a global step; returns the last that it has."""
  harness.wait_until(lambda: steps(task)[-1:] >= [(number,)], what="step %d of %s:\n%s" % (
    number, task.name, task.output))
  return steps(task)[-1].number


def last_line(task, pattern):
  """Matches the last line that a task has printed; returns the groups, integers as such.

  Without what the chief says of what it sent, which is for traffic_report_test.py.
  """
  line = re.sub(
    r", sent per step: .* down, .* and [\d.]+ up(?: \(.* waiting\))?(?:, bound by [^,]*)?", "",
    task.last_line)
  match = re.match(pattern + "$", line)
  assert match, "%r does not match the last line of %s:\n%s" % (pattern, task.name, task.output)
  return [int(group) if group.isdigit() else group for group in match.groups()]


def find(task, pattern):
  """Finds a pattern in what a task has printed; returns the groups of the last match."""
  matches = list(re.finditer(pattern, task.output))
  assert matches, "no %r in the output of %s:\n%s" % (pattern, task.name, task.output)
  return [int(group) if group.isdigit() else group for group in matches[-1].groups()]


def codes(*tasks):
  """Waits for the end of these tasks; returns their exit codes."""
  return [task.wait() for task in tasks]


def in_directory(directory, function, *args):
  """Calls a function in a directory, with less patience for files that do not appear there."""
  os.chdir(directory)
  checkpoints.check_shards_visible.__defaults__ = (0.5,)
  return function(*args)
