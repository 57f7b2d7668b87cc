"""Watching the tasks that a session talks to, while it talks to them.

A run on a ps that died may raise (TF 2.21) or hang (1.15); on one that was stopped it hangs on
both. So a thread probes these tasks once a second, by calls with limits of their own:

1. Refused, or up under another incarnation: the process is gone or was started again. The session's
   state there is lost; `on_gone` is called once, so that the session can be given up and made anew.
2. Silent: perhaps only paused. Nothing happens until it has been silent for `heartbeat_timeout`
   seconds; then `on_lost` is called.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, Sequence

from tf1ps.cluster import probe as probe_lib
from tf1ps.cluster import readiness
from tf1ps.compat import TIMING


class TaskWatch:
  """A thread that probes tasks, from `start` to `stop`."""

  def __init__(
    self,
    seen: Sequence[probe_lib.ProbeResult],
    heartbeat_timeout: float,
    on_gone: Callable[[probe_lib.ProbeResult], None],
    on_lost: Callable[[probe_lib.ProbeResult, float], None],
  ):
    """Prepares the thread; `start` begins to watch.

    Args:
      seen: what was seen of each task when the session was made, with the incarnations.
      heartbeat_timeout: seconds of silence after which a task counts as lost.
      on_gone: called with what was seen of a task that was restarted or refuses, once in all.
      on_lost: called with what was seen of a silent task and the seconds of silence, once in all.
    """
    if heartbeat_timeout <= 0:
      raise ValueError("heartbeat_timeout must be a positive number of seconds, got "
                       "%r" % (heartbeat_timeout,))
    self._tasks = [one.task for one in seen]
    self._incarnations = {one.task: one.incarnation for one in seen}
    self._heartbeat_timeout = heartbeat_timeout
    self._on_gone = on_gone
    self._on_lost = on_lost
    self._refusals: Dict[object, int] = {}
    self._stopped = threading.Event()
    now = time.monotonic()
    self._answered_at = {task: now for task in self._tasks}
    self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: watch the ps")

  def start(self) -> None:
    """Begins to watch; without tasks there is nothing to do."""
    if self._tasks:
      self._thread.start()

  def stop(self) -> None:
    """Ends the thread; a probe under way is not waited for longer than its own limit."""
    self._stopped.set()
    if self._thread.is_alive() and self._thread is not threading.current_thread():
      self._thread.join(TIMING.watch_probe_limit + TIMING.thread_end_limit)

  def _watch(self):
    before = time.monotonic()
    while not self._stopped.wait(TIMING.heartbeat_interval):
      seen = readiness.probe_tasks(self._tasks, timeout=TIMING.watch_probe_limit)
      now = time.monotonic()
      if now - before > 3 * TIMING.heartbeat_interval + 2 * TIMING.watch_probe_limit:
        # This very process stood still: its silence is not theirs.
        self._answered_at = {task: now for task in self._tasks}
      before = now
      for one in seen:
        if self._stopped.is_set() or self._judge(one):
          return

  def _judge(self, one: probe_lib.ProbeResult) -> bool:
    """Calls back if the task is gone or lost; returns whether it did."""
    now = time.monotonic()
    if one.is_up:
      self._answered_at[one.task] = now
      self._refusals[one.task] = 0
      if one.incarnation != self._incarnations[one.task]:
        self._on_gone(one._replace(detail="it was started again"))
        return True
      return False
    if one.state != probe_lib.SILENT:
      # A full queue of connections refuses too, for a moment: two refusals in a row count.
      self._refusals[one.task] = self._refusals.get(one.task, 0) + 1
      if self._refusals[one.task] >= 2:
        self._on_gone(one)
        return True
      return False
    silence = now - self._answered_at[one.task]
    if silence >= self._heartbeat_timeout:
      self._on_lost(one, silence)
      return True
    return False
