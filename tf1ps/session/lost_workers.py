"""Says in the chief's log that a worker is lost, and that it is back: one line each."""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, List

from tf1ps.compat import LINE_TIME
from tf1ps.state import Member

_log = logging.getLogger("tf1ps")


class LostWorkers:
  """The workers of a run that are lost now."""

  def __init__(self, is_lost: Callable[[Member], bool]):
    """Prepares; `is_lost` says whether a member has been silent for --heartbeat_timeout."""
    self._is_lost = is_lost
    self._since: Dict[str, float] = {}  # by name: the last heartbeat, by the monotonic clock

  def look(self, members: List[Member], run: str) -> None:
    """Takes the last heartbeats of all tasks; `run` is the id of the run."""
    for member in members:
      if member.role != "worker" or member.run != run:
        continue
      if member.name not in self._since:
        if self._is_lost(member):
          self._since[member.name] = time.monotonic() - member.age
          _log.warning(
            "%s is lost: silent for %.0f s, since %s; process %d on %s was at global step %d. The "
            "others go on as long as their updates do not need it; start it again, or the job "
            "fails at its end", member.name, member.age,
            time.strftime(LINE_TIME, time.localtime(time.time() - member.age)), member.pid,
            member.host, member.global_step)
      elif member.has_ended:
        del self._since[member.name]
      elif not self._is_lost(member):
        _log.warning("%s is back after %.0f s: process %d on %s", member.name,
                     time.monotonic() - self._since.pop(member.name), member.pid, member.host)
