"""The hook that bounds the lead of a replica over the slowest (stale-synchronous parallel).

After each step the replica knows its lead: how many steps it has made more than the slowest replica
that takes part (clocks.py). With a lead of `max_lead` it waits, so that the next step never takes
it further. While it waits it looks at the clocks, after pauses from 2 to 50 ms, and once a second
at the heartbeats: whom they say to be lost or ended is dropped, and so is who has not joined within
`start_timeout`. Without a `tf1ps.Server` there are no heartbeats, and nobody is seen to be lost.

The bound and its effect on convergence: Ho et al., "More Effective Distributed ML via a Stale
Synchronous Parallel Parameter Server", 2013.
"""

from __future__ import annotations

import logging
import time
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook, latest_record
from tf1ps.compat import TIMING, error_line
from tf1ps.replication import clocks as clocks_lib
from tf1ps.replication import lost_replicas
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")


class LeadHook(LifecycleHook):
  """Joins in each session, waits where its lead is the highest allowed, leaves at the end.

  Attributes:
    highest: the highest lead that it had after a step.
    seconds: how long it has waited.
  """

  def __init__(self, clocks: clocks_lib.Clocks, advanced: tf.Tensor, max_lead: int,
               start_timeout: float = 60.0, expects_all: bool = True):
    """Creates the hook.

    Args:
      clocks: the replica's.
      advanced: what `clocks.advance` returned.
      max_lead: the highest lead, in steps, at least 1.
      start_timeout: seconds that the others may take to join.
      expects_all: whether those that have not joined yet are waited for at all.
    """
    if max_lead < 1:
      raise ValueError("max_lead must be at least 1, got %r: with 0, all would wait for each "
                       "other" % (max_lead,))
    if not start_timeout > 0:
      raise ValueError("start_timeout must be a positive number of seconds, got %r" % (
        start_timeout,))
    self._clocks = clocks
    self._advanced = advanced
    self._max_lead = max_lead
    self._start_timeout = start_timeout
    # Those that are counted, and those that a next step waits for.
    self._counted = (clocks_lib.ACTIVE,) + (clocks_lib.EXPECTED,) * expects_all
    self._awaited = self._counted + (clocks_lib.JOINING,)
    self._coord = None
    self._began = 0.0
    self._lost: Optional[lost_replicas.LostReplicas] = None
    self._names = []
    self._lifecycle = None
    self.highest = 0
    self.seconds = 0.0

  def on_join(self, lifecycle):
    self._lifecycle = lifecycle

  def after_create_session(self, session, coord):
    self._close()
    record = latest_record()
    self._names = lost_replicas.names(self._clocks.replicas, record)
    self._lost = lost_replicas.LostReplicas(record, self._start_timeout)
    view = self._clocks.join(session)
    self._coord, self._began = coord, time.monotonic()
    # The slowest that takes part may be ahead of one that has not joined.
    self._wait(session, view, coord.should_stop)

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._advanced)

  def after_run(self, run_context, run_values):
    view = clocks_lib.view_clocks(run_values.results)
    if view.standings[self._clocks.index] != clocks_lib.ACTIVE:
      _log.warning("this replica was silent, and was not counted meanwhile; it joins again")
      view = self._clocks.join(run_context.session)
    self.highest = max(self.highest, view.lead(self._clocks.index, self._counted))
    self._wait(run_context.session, view, lambda: run_context.stop_requested)

  def leave(self, session, finished: bool = True):
    """Leaves; a replica that waits for the others' end does it before.

    Args:
      session: the session.
      finished: makes no difference here.
    """
    self._close()
    self._clocks.leave(session)

  def end(self, session):
    self.leave(session)

  def _is_signalled(self):
    return self._lifecycle is not None and self._lifecycle.signum is not None

  def _may_begin(self, view):
    return view.lead(self._clocks.index, self._awaited) < self._max_lead

  def _wait(self, session, view, is_stopped):
    """Waits until the next step may begin, or until there will be none."""
    if self._may_begin(view):
      return
    began = looked = time.monotonic()
    pause = TIMING.first_poll_interval
    while not (self._may_begin(view) or is_stopped() or self._is_signalled()
               or self._coord.wait_for_stop(pause)):
      view = self._clocks.look(session)
      pause = min(2 * pause, TIMING.local_poll_interval)
      if time.monotonic() - looked >= TIMING.heartbeat_interval:
        looked = time.monotonic()
        self._drop_the_lost(session, view)
    self.seconds += time.monotonic() - began

  def _drop_the_lost(self, session, view):
    index = self._clocks.index
    awaited = [i for i in range(self._clocks.replicas) if i != index
               and view.standings[i] in self._awaited
               and view.clocks[index] - view.clocks[i] >= self._max_lead]
    try:
      reasons = self._lost.lost(awaited)
    except ControlError as error:
      _log.debug("the heartbeats were not read: %s", error_line(error))
      reasons = {}
    waited = time.monotonic() - self._began
    for i in awaited:
      if view.standings[i] == clocks_lib.EXPECTED and waited > self._start_timeout:
        reasons.setdefault(i, "has not begun within %.0f s" % waited)
    for i, reason in sorted(reasons.items()):
      self._clocks.drop(session, i)
      _log.warning("%s %s: nobody waits for it any more", self._names[i], reason)

  def _close(self):
    if self._lost is not None:
      self._lost.close()
      self._lost = None
