"""Collects the lines of stalled tasks, and shows in one table which task waits for which.

A worker that makes no step prints a line that begins with "stalled: " (training/stall_watch.py).
Tasks that stall for the same reason print their lines within seconds of each other. So the first
line begins a pause, and the lines that come within this pause make one table. The table also has
the tasks that are stopped by a signal, because these tasks cannot print a line.
"""

from __future__ import annotations

import re
import time
from typing import Dict, Iterable, List, Optional

from tf1ps.compat import TIMING
from tf1ps.launch.job import TaskProcess

_STALLED = re.compile(r"(?:\d\d:\d\d:\d\d )?stalled: (?:\S+ has )?(.*)")


class Stalls:
  """The lines of stalled tasks that are not shown together yet."""

  def __init__(self, prefix: str = "tf1ps-local: "):
    self._prefix = prefix
    self._texts: Dict[str, str] = {}
    self._due: Optional[float] = None

  def note(self, name: str, line: str) -> None:
    """Takes a line of a task; ignores a line that is not about a stall."""
    stall = _STALLED.match(line)
    if stall is None:
      return
    self._texts[name] = stall.group(1)
    if self._due is None:
      self._due = time.monotonic() + TIMING.stalls_pause

  @property
  def left(self) -> Optional[float]:
    """Seconds until `take` has a table; None without a stall."""
    return None if self._due is None else max(0.0, self._due - time.monotonic())

  def take(self, processes: Iterable[TaskProcess]) -> List[str]:
    """Returns the table's lines if it is due, once; else [].

    Args:
      processes: the processes of all tasks, in the order of the table.
    """
    if self.left != 0.0:
      return []
    texts, self._texts, self._due = self._texts, {}, None
    for process in processes:
      if process.exit_code is None and _is_stopped(process.pid):
        texts[process.name] = "is stopped by a signal (process %d)" % process.pid
    names = [process.name for process in processes if process.name in texts]
    width = max(map(len, names)) if names else 0
    return [self._prefix + "stalled tasks:"] + [
      "%s  %s  %s" % (self._prefix, name.ljust(width), texts[name])
      for name in dict.fromkeys(names)]


def _is_stopped(pid: int) -> bool:
  try:
    with open("/proc/%d/stat" % pid) as file:
      return file.read().rpartition(")")[2].split()[0] == "T"
  except (OSError, IndexError):
    return False
