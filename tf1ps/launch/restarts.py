"""Decides whether a task that has failed is started again, and when.

The launcher starts such a task at the same address, with the same flags:

  end of the task                   started again
  exit code 0                       no: the task has done its part
  EXIT_REFUSED, the first start     no: the same error would come again
  EXIT_PORT_TAKEN, the first start  no: the launcher starts all tasks with other ports
  any other failure or signal       yes, `max_restarts` times per task

The first restart comes immediately, the second restart comes after `TIMING.restart_pause`, and each
later pause is twice as long as the previous pause, up to a limit. After a start that has lived for
`TIMING.restart_reset` seconds, the pauses begin again from zero, but the count of restarts goes on.
"""

from __future__ import annotations

import time
from typing import Dict, Optional

from tf1ps.compat import EXIT_PORT_TAKEN, EXIT_REFUSED, EXIT_RELEASED, TIMING
from tf1ps.launch.job import TaskProcess


class _Task:
  """The starts of a task."""

  def __init__(self):
    self.restarts = 0
    self.started = time.monotonic()
    self.pause = 0.0  # before the next restart
    self.first: Optional[TaskProcess] = None  # the first failure since a start that lived long
    self.last: Optional[TaskProcess] = None  # the last failure


class Restarts:
  """The restarts of all tasks of a job."""

  def __init__(self, max_restarts: int):
    """Prepares; `max_restarts` is the number of restarts per task, and 0 allows none."""
    self._max_restarts = max_restarts
    self._tasks: Dict[str, _Task] = {}

  @property
  def are_allowed(self) -> bool:
    """Whether any task may be started again."""
    return self._max_restarts > 0

  @property
  def total(self) -> int:
    """The restarts of all tasks."""
    return sum(task.restarts for task in self._tasks.values())

  def note_start(self, name: str) -> None:
    """Notes that a task is started, for the first time or again."""
    self._tasks.setdefault(name, _Task()).started = time.monotonic()

  def pause_after(self, process: TaskProcess) -> Optional[float]:
    """Counts a failure; returns the seconds until the restart, or None without a restart."""
    task = self._tasks[process.name]
    if time.monotonic() - task.started >= TIMING.restart_reset:
      task.pause, task.first = 0.0, None
    task.last = process
    if task.first is None or task.first.exit_code == EXIT_RELEASED:
      task.first = process
    comes_again = not task.restarts and process.exit_code in (EXIT_REFUSED, EXIT_PORT_TAKEN)
    if comes_again or task.restarts >= self._max_restarts:
      return None
    task.restarts += 1
    pause, task.pause = task.pause, max(
      TIMING.restart_pause, min(2 * task.pause, TIMING.longest_restart_pause))
    return pause

  def count(self, name: str) -> int:
    """How often a task was started again."""
    return self._tasks[name].restarts

  def first_failure(self, process: TaskProcess) -> TaskProcess:
    """The first failure of the crash loop that `process` ended, which may be `process` itself."""
    task = self._tasks[process.name]
    return task.first if task.first is not None and task.last is process else process

  def say(self, name: str, pause: float) -> str:
    """Returns "restart 1 of 5 at once", "restart 3 of 5 in 2 s"."""
    return "restart %d of %d %s" % (
      self.count(name), self._max_restarts, "in %g s" % pause if pause else "at once")
