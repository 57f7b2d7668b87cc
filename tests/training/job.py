"""A job on this machine whose tasks a test starts, kills and starts again as it likes.

Each task is the program that people start, tf1ps-ps or tf1ps-worker, with the flags that they would
give it, and the program tests/programs/line.py to train.
"""
from __future__ import annotations

import re

from tests import harness
from tf1ps.cli import ps, worker

PROGRAM = "tests/programs/line.py"


class Job(object):
  """The tasks of one job, at addresses of their own."""

  def __init__(self, start, num_ps=1, num_workers=2, *flags):
    """Chooses the addresses; `start` is the fixture, `flags` are for all of the tasks."""
    addresses = harness.addresses(num_ps + num_workers)
    self.ps_hosts, self.worker_hosts = addresses[:num_ps], addresses[num_ps:]
    self._start = start
    self._flags = ["--program=" + PROGRAM, "--lost_after=2", "--start_timeout=10", *flags]

  def ps(self, index=0, *flags):
    """Starts a ps; returns its `harness.Task`."""
    return self._task("ps", ps.run, index, flags)

  def worker(self, index=0, *flags):
    """Starts a worker; worker 0 is the chief."""
    return self._task("worker", worker.run, index, flags)

  def _task(self, job, run, index, flags):
    hosts = ["--ps_hosts=" + ",".join(self.ps_hosts),
             "--worker_hosts=" + ",".join(self.worker_hosts), "--task_index=%d" % index]
    given = [flag for flag in self._flags if job != "ps" or not flag.startswith(
      ("--step_seconds",))]
    return self._start("%s %d" % (job, index), run, [*hosts, *given, *flags], False)


def last_line(task):
  """The last line that a task has printed."""
  return task.lines[-1]


def numbers(text, pattern):
  """The integers of all matches of a pattern's group."""
  return [int(found) for found in re.findall(pattern, text)]
