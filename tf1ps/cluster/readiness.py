"""Waiting for tasks, with a limit and with names.

Before a session is created, exactly the tasks that it will talk to are probed, in rounds, until
all are up or the time is over. A line says now and then who is missing; the error at the end names
each missing task, its address and what was seen there.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
from typing import Callable, List, Optional, Sequence

from tf1ps.cluster import probe as probe_lib
from tf1ps.compat import TIMING, Error

_log = logging.getLogger("tf1ps")


class TaskUnavailableError(Error, RuntimeError):
  """Tasks that did not come up, or went away, within the limit.

  Attributes:
    seen: what was seen of each of them, a list of `probe.ProbeResult`.
  """

  def __init__(self, seen: Sequence[probe_lib.ProbeResult], waited: float, what: str):
    self.seen = list(seen)
    listed = "; ".join(str(one) for one in self.seen)
    super().__init__("%s after %.0f s: %s" % (what, waited, listed))


def probe_tasks(
  tasks: Sequence, timeout: float = TIMING.probe_limit
) -> List[probe_lib.ProbeResult]:
  """Probes tasks side by side; returns what was seen, in the tasks' order."""
  if len(tasks) < 2:
    return [probe_lib.probe_task(task, timeout) for task in tasks]
  with concurrent.futures.ThreadPoolExecutor(min(len(tasks), 16)) as pool:
    return list(pool.map(lambda task: probe_lib.probe_task(task, timeout), tasks))


def wait_for_tasks(
  tasks: Sequence,
  timeout: float,
  what: str = "not every task of the cluster is there",
  interrupted: Optional[Callable[[], None]] = None,
) -> List[probe_lib.ProbeResult]:
  """Waits until every task is up.

  Args:
    tasks: the `spec.Task`s that a session is going to talk to.
    timeout: seconds for all of them together.
    what: how the error begins.
    interrupted: called every round; it raises when the wait shall end early (after a signal).

  Returns:
    What was seen of each of the tasks, with their incarnations.

  Raises:
    TaskUnavailableError: naming each missing task, its address and what was seen there.
    ValueError: the timeout is not positive.
  """
  if timeout <= 0:
    raise ValueError("timeout must be a positive number of seconds, got %r" % (timeout,))
  began = time.monotonic()
  said, said_at = None, began - TIMING.reminder_interval
  seen = {}
  while True:
    limit = max(0.1, min(TIMING.probe_limit, began + timeout - time.monotonic()))
    missing = [task for task in tasks if not (task in seen and seen[task].is_up)]
    for one in probe_tasks(missing, limit):
      seen[one.task] = one
    absent = [seen[task] for task in tasks if not seen[task].is_up]
    if not absent:
      # Whoever was up in an early round may have gone since: one last look at everybody.
      final = probe_tasks(tasks, limit) if len(missing) != len(tasks) else [seen[t] for t in tasks]
      if all(one.is_up for one in final):
        return final
      seen = {one.task: one for one in final}
      continue
    now = time.monotonic()
    if now - began >= timeout:
      raise TaskUnavailableError(absent, now - began, what)
    line = "; ".join(str(one) for one in absent)
    is_due = line != said or now - said_at >= TIMING.reminder_interval
    if is_due and now - began > TIMING.first_report:
      _log.warning("waiting (%.0f of %.0f s) for %s", now - began, timeout, line)
      said, said_at = line, now
    if interrupted is not None:
      interrupted()
    time.sleep(max(0.0, min(TIMING.poll_interval, began + timeout - now)))
