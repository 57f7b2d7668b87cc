"""Clocks count the steps of each replica, and bound a replica's lead over the slowest.

A replica's clock counts its own steps, whether its gradients were applied or not. A small vector
beside the global step, in no checkpoint, holds the clocks and states of all replicas:

1. A replica joins with the clock of the slowest replica that takes part, so that no other replica
   waits for a late replica to catch up. First the joining replica becomes JOINING. Its clock may
   then be a step too low, because the others continue meanwhile. From then on the others wait for
   it, so that no replica is too far ahead of the slowest clock that the new replica reads next.
2. The replica's training step raises its clock and reads all clocks (`advance`), without a further
   message.
3. The replica leaves, or other replicas drop it because it is lost. Then it no longer counts. A
   replica that was dropped by mistake notices this after its next step, and joins again.

When the variables get new values, the chief clears the clocks (session_ops.py), and all replicas
join again. Each replica writes only its own clock, so no step needs a lock.

`LeadHook` bounds the lead (stale synchronous parallel): a replica that leads the slowest by
`max_lead` waits before its next step. While it waits it reads the clocks, and once per heartbeat
interval the heartbeats. It drops a replica that is lost or has ended according to the heartbeats,
or that has not joined within `start_timeout`. It also drops a replica that makes no step for
`end_timeout` while others wait for it, because a stuck replica may still send heartbeats. Without a
`tf1ps.Server` there are no heartbeats, and no replica counts as lost. For the bound and its effect
on convergence, see Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
Parameter Server", 2013.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Iterable, List, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook, latest_record
from tf1ps.compat import START_TIMEOUT, TIMING, error_line
from tf1ps.replication import lost_replicas, session_ops
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")

# The states of a replica: not joined yet; taking part; left or was dropped; joining.
EXPECTED, ACTIVE, CLOCK_LEFT, JOINING = range(4)


class ClocksView(NamedTuple):
  """The values of the clocks in Python."""

  clocks: List[int]  # of each replica
  states: List[int]  # EXPECTED, ACTIVE, CLOCK_LEFT or JOINING

  def lead(self, index: int, counted: Iterable[int] = (EXPECTED, ACTIVE)) -> int:
    """Returns a replica's lead over the slowest replica in a state of `counted`, in steps."""
    others = [clock for i, clock in enumerate(self.clocks)
              if i != index and self.states[i] in counted]
    return max([self.clocks[index] - clock for clock in others], default=0)


class Clocks:
  """The clocks of a job's replicas, in a replica's graph.

  Attributes:
    replicas: the number of replicas.
    index: the index of this replica.
    clear: sets all clocks to 0 and makes all replicas join again; for the chief, in a session that
      initialises variables. A training session of tf1ps runs it by itself.
  """

  def __init__(self, global_step: tf.Variable, replicas: int, index: int):
    """Builds the clocks in the default graph.

    Args:
      global_step: the variable that counts updates; the clocks live beside it.
      replicas: the number of replicas.
      index: the index of this replica.

    Raises:
      ValueError: an index that is not 0 to `replicas` - 1.
    """
    if not 0 <= index < replicas:
      raise ValueError("index must be 0 to %d, got %r: there are %d replicas" % (
        replicas - 1, index, replicas))
    self.replicas, self.index = replicas, index
    self._has_left = False
    graph = tf.get_default_graph()
    self._global_step = global_step
    container = global_step.op.get_attr("container").decode("utf-8")
    with tf.control_dependencies(None), tf.name_scope("clocks"), \
        graph.container(container), graph.colocate_with(global_step.op):
      self._handle = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[2 * replicas], shared_name="tf1ps.clocks:" + global_step.op.name)
      self.clear = tf.raw_ops.AssignVariableOp(
        resource=self._handle, value=tf.zeros([2 * replicas], tf.int64))
      self._look = self._read()
      self._join = self._build_join()
      self._dropped = tf.placeholder_with_default(tf.constant(index, tf.int64), [])
      self._drop = self._write([replicas + self._dropped], [CLOCK_LEFT])
    session_ops.add_clear_op(self.clear)

  def advance(self, train_op: tf.Operation) -> tf.Tensor:
    """Builds the operation that raises this replica's clock after the training step `train_op`.

    Fetch it together with `train_op`. `view_clocks` takes its value: all clocks after the step.
    """
    with tf.get_default_graph().colocate_with(self._global_step.op), \
        tf.control_dependencies([train_op]):
      raised = tf.raw_ops.ResourceScatterAdd(
        resource=self._handle, indices=[self.index], updates=tf.constant([1], tf.int64))
      with tf.control_dependencies([raised]):
        return self._read()

  # Calls beside the steps.

  def look(self, session: tf.Session) -> ClocksView:
    """Returns the present clocks."""
    return view_clocks(session.run(self._look))

  def join(self, session: tf.Session) -> ClocksView:
    """Makes this replica take part, with the slowest replica's clock; does not undo `leave`."""
    if self._has_left:
      self.leave(session)
      return self.look(session)
    return view_clocks(session.run(self._join))

  def leave(self, session: tf.Session) -> None:
    """Ends this replica's part."""
    self._has_left = True
    self.drop(session, self.index)

  def drop(self, session: tf.Session, replica: int) -> None:
    """Ends the part of another replica."""
    session.run(self._drop, {self._dropped: replica})

  def _read(self):
    value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)
    value.set_shape([2 * self.replicas])
    return value

  def _write(self, indices, values):
    return tf.raw_ops.ResourceScatterUpdate(
      resource=self._handle, indices=indices, updates=tf.cast(values, tf.int64))

  def _build_join(self):
    joining = self._write_own(JOINING)
    with tf.control_dependencies([joining]):
      joined = self._write_own(ACTIVE)
    with tf.control_dependencies([joined]):
      return self._read()

  def _write_own(self, state):
    """Writes this replica's state, and the clock of the slowest other replica, if any."""
    clocks, states = tf.split(self._read(), 2)
    counts = tf.logical_and(tf.equal(states, ACTIVE),
                            tf.not_equal(tf.range(self.replicas), self.index))
    slowest = tf.reduce_min(tf.where_v2(counts, clocks, tf.int64.max))
    begin = tf.where_v2(tf.reduce_any(counts), slowest, clocks[self.index])
    return self._write([self.index, self.replicas + self.index], tf.stack([begin, state]))


def view_clocks(value: np.ndarray) -> ClocksView:
  """Returns the vector as Python values."""
  clocks, states = np.split(value, 2)
  return ClocksView(clocks.tolist(), states.tolist())


class LeadHook(LifecycleHook):
  """Joins in each session, waits while its lead is the highest allowed, and leaves at the end.

  Attributes:
    highest: the highest lead that the replica had after a step.
    seconds: the time that the replica has waited.
  """

  def __init__(self, clocks: Clocks, advanced: tf.Tensor, max_lead: int,
               start_timeout: float = START_TIMEOUT, expects_all: bool = True, *,
               end_timeout: float = 300.0):
    """Creates the hook.

    Args:
      clocks: this replica's clocks.
      advanced: the value of `clocks.advance`.
      max_lead: the highest lead, in steps, at least 1.
      start_timeout: seconds that the other replicas may take to join.
      expects_all: whether to wait for replicas that have not joined yet.
      end_timeout: seconds that this replica waits for another replica that makes no step.
    """
    if max_lead < 1:
      raise ValueError("max_lead must be at least 1, got %r: with 0, all would wait for each "
                       "other" % (max_lead,))
    for name, limit in (("start_timeout", start_timeout), ("end_timeout", end_timeout)):
      if not limit > 0:
        raise ValueError("%s must be a positive number of seconds, got %r" % (name, limit))
    self._clocks, self._advanced, self._max_lead = clocks, advanced, max_lead
    self._start_timeout, self._end_timeout = start_timeout, end_timeout
    # The states of the replicas that count, and of the replicas that the next step waits for.
    self._counted = (ACTIVE,) + (EXPECTED,) * expects_all
    self._awaited = self._counted + (JOINING,)
    self._coord = None
    self._began = 0.0
    self._lost: Optional[lost_replicas.LostReplicas] = None
    self._names: List[str] = []
    self._lifecycle: Any = None
    self.highest = 0
    self.seconds = 0.0

  def on_join(self, lifecycle: Any) -> None:
    self._lifecycle = lifecycle

  def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
    self._close()
    record = latest_record()
    self._names = lost_replicas.names(self._clocks.replicas, record)
    self._lost = lost_replicas.LostReplicas(record, self._start_timeout)
    view = self._clocks.join(session)
    self._coord, self._began = coord, time.monotonic()
    # The slowest active replica may be ahead of a replica that has not joined.
    self._wait(session, view, coord.should_stop)

  def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
    return tf.train.SessionRunArgs(self._advanced)

  def after_run(self, run_context: tf.train.SessionRunContext,
                run_values: tf.train.SessionRunValues) -> None:
    view = view_clocks(run_values.results)
    if view.states[self._clocks.index] != ACTIVE:
      _log.warning("the other replicas stopped waiting for this replica: it was silent or made "
                   "no step for a long time. It joins them again")
      view = self._clocks.join(run_context.session)
    self.highest = max(self.highest, view.lead(self._clocks.index, self._counted))
    self._wait(run_context.session, view, lambda: run_context.stop_requested)

  def leave(self, session: tf.Session, finished: bool = True) -> None:
    """Leaves, after success or failure, before a chief waits for the end of the other replicas."""
    self._close()
    self._clocks.leave(session)

  def end(self, session: tf.Session) -> None:
    self.leave(session)

  def _is_signalled(self):
    return self._lifecycle is not None and self._lifecycle.signum is not None

  def _may_begin(self, view):
    return view.lead(self._clocks.index, self._awaited) < self._max_lead

  def _wait(self, session, view, is_stopped):
    """Waits until the next step may begin, or until training ends."""
    if self._may_begin(view):
      return
    began = looked = reminded = time.monotonic()
    pause, seen = TIMING.first_poll_interval, {}
    while not (self._may_begin(view) or is_stopped() or self._is_signalled()
               or self._coord.wait_for_stop(pause)):
      view = self._clocks.look(session)
      pause = min(2 * pause, TIMING.local_poll_interval)
      if time.monotonic() - looked >= TIMING.heartbeat_interval:
        looked = time.monotonic()
        self._drop_the_lost(session, view, seen)
      reminded = self._remind(view, began, reminded)
    self.seconds += time.monotonic() - began

  def _remind(self, view, began, reminded):
    """Logs at intervals which replicas this replica waits for; returns the last line's time."""
    now = time.monotonic()
    if now - reminded < TIMING.reminder_interval:
      return reminded
    _log.warning(
      "this replica has waited %.0f s for a step of %s, because it may be at most %d steps ahead. "
      "A replica that answers and makes no step may be stuck: look at its log", now - began,
      ", ".join(self._names[i] for i in self._waited_for(view)), self._max_lead)
    return now

  def _waited_for(self, view):
    index = self._clocks.index
    return [i for i in range(self._clocks.replicas) if i != index
            and view.states[i] in self._awaited
            and view.clocks[index] - view.clocks[i] >= self._max_lead]

  def _drop_the_lost(self, session, view, seen):
    """Drops replicas that will not make a step; `seen` has {replica: (clock, since when)}."""
    awaited = self._waited_for(view)
    try:
      reasons = self._lost.lost(awaited)
    except ControlError as error:
      _log.debug("the heartbeats were not read: %s", error_line(error))
      reasons = {}
    now = time.monotonic()
    for i in awaited:
      if i not in seen or seen[i][0] != view.clocks[i]:
        seen[i] = (view.clocks[i], now)
      stood = now - seen[i][1]
      if view.states[i] == EXPECTED and now - self._began > self._start_timeout:
        reasons.setdefault(i, "has not joined within %.0f s" % (now - self._began))
      elif view.states[i] != EXPECTED and stood > self._end_timeout:
        reasons.setdefault(i, "has made no step for %.0f s (end_timeout)" % stood)
    for i, reason in sorted(reasons.items()):
      self._clocks.drop(session, i)
      _log.warning("%s %s: the others do not wait for it any more", self._names[i], reason)

  def _close(self):
    if self._lost is not None:
      self._lost.close()
      self._lost = None
