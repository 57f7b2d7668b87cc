"""Warm-up: worker 0 trains alone at first, and the other workers follow one by one.

The first steps change the variables most, and stale gradients do the most harm there. So worker i
makes its first step when the global step has reached i times the number of steps of the policy.
While it waits, it reads

1. the global step, four times per second. At the job's last step the wait ends, and the worker
   makes no step;
2. the clocks (replication/clocks.py), four times per second. If all workers before this worker
   have left, the wait ends, because nothing else raises the global step;
3. the heartbeats, once per second. If the chief is lost or has ended, the wait ends with an error.
   A lost worker counts as having left.

Each new session waits, so that a worker which recovers from a restored checkpoint also waits.
"""

from __future__ import annotations

import logging
import time
from typing import Optional

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING, error_line
from tf1ps.replication import CLOCK_LEFT, Clocks, LostReplicas
from tf1ps.session import Membership, TaskLostError
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")


class WarmUp(LifecycleHook):
  """Delays this worker's first step in each session, and leaves the clocks at the session's end."""

  def __init__(self, clocks: Clocks, steps_each: int,
               tracker: GlobalStepTracker, membership: Membership,
               last_step: Optional[int] = None, start_timeout: float = 60.0):
    """Creates the hook; it comes after `tracker`, and before hooks that plan by the global step.

    Args:
      clocks: this worker's clocks.
      steps_each: the number of global steps between the first steps of two workers.
      tracker: tracks the global step.
      membership: this worker's membership of the run.
      last_step: the global step at which the job ends, or None.
      start_timeout: seconds until the workers before this worker must have joined.
    """
    if steps_each < 1:
      raise ValueError("steps_each must be at least 1, got %r" % (steps_each,))
    self._clocks = clocks
    self._begins_at = steps_each * clocks.index
    self._tracker, self._membership, self._last_step = tracker, membership, last_step
    self._start_timeout = start_timeout

  def after_create_session(self, session, coord):
    lost = LostReplicas(self._membership.record, self._start_timeout)
    try:
      self._wait(session, coord, lost)
    finally:
      lost.close()
    self._clocks.join(session)

  def leave(self, session, finished: bool = True):
    """Leaves the clocks, so that waiting workers may begin before a chief waits for their end."""
    self._clocks.leave(session)

  def end(self, session):
    self.leave(session)

  def _wait(self, session, coord, lost):
    before = list(range(self._clocks.index))
    gone, said, looked = {}, False, time.monotonic()
    while not coord.should_stop():
      step = self._tracker.ask(session)
      if step >= self._begins_at or self._last_step is not None and step >= self._last_step:
        return
      states = self._clocks.look(session).states
      if all(states[i] == CLOCK_LEFT or i in gone for i in before):
        return
      if not said:
        said = True
        _log.info("waiting for global step %d to begin (--staleness_policy=warm_up)",
                  self._begins_at)
      if time.monotonic() - looked >= TIMING.heartbeat_interval:
        looked = time.monotonic()
        gone = self._look_at(lost, before, gone)
      coord.wait_for_stop(TIMING.poll_interval)

  def _look_at(self, lost, before, gone):
    """Returns the lost workers of `before`; raises TaskLostError if the chief is among them."""
    try:
      gone = lost.lost(before)
    except ControlError as error:
      _log.debug("the heartbeats were not read: %s", error_line(error))
    chief = self._membership.cluster.chief.name
    for i, reason in gone.items():
      if self._membership.cluster.replicas[i].name == chief:
        raise TaskLostError(
          "this worker waits for global step %d (--staleness_policy=warm_up), but the chief %s %s"
          % (self._begins_at, chief, reason))
    return gone
