"""The hook of `SyncReplicasOptimizer`: joins, watches the other replicas, leaves.

In each session the hook joins before the first step. Beside the loop, a thread does the following
once per heartbeat interval:

1. It checks whether the present round waits for replicas that are lost or have ended according to
   their heartbeats (lost_replicas.py). With on_uneven "shrink" the thread drops these replicas, and
   the others continue. With enough spare replicas the round does not need the lost replicas.
   Otherwise the thread ends the session with a `ReplicaLostError` that names the lost replicas.
2. It puts another token for a replica that waits although its round is over, because an interrupted
   run may have taken the first token.

At the end of the loop the replica leaves. A chief that waits for the others then ends training for
all replicas. A lost replica that returns later finds that training has ended, and makes no update
after the last checkpoint. A replica that ends with an error reports the error by its heartbeat.
Without a `tf1ps.Server` there are no heartbeats, and no replica counts as lost.
"""

from __future__ import annotations

import logging
import threading
from typing import Dict, List, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, LifecycleHook, call_within, latest_record
from tf1ps.compat import START_TIMEOUT, TIMING, Error, error_line
from tf1ps.replication import lost_replicas, rounds
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")


class ReplicaLostError(Error, RuntimeError):
  """A replica that every update waits for is lost, or has ended."""


class SyncReplicasHook(LifecycleHook):
  """Joins at the beginning of each session, and leaves at the end of the loop.

  Attributes:
    state: the `rounds.RoundState` at the end, in Python values; None before the end.
    was_ended: whether another replica's end ended training before this replica left.
  """

  def __init__(self, optimizer, is_chief: bool, start_timeout: float = START_TIMEOUT):
    """Creates the hook; for the arguments see `SyncReplicasOptimizer.make_session_run_hook`."""
    if not start_timeout > 0:
      raise ValueError("start_timeout must be a positive number of seconds, got %r" % (
        start_timeout,))
    self._start_timeout, self._optimizer, self._is_chief = start_timeout, optimizer, is_chief
    self._watch: Optional[_Watch] = None
    self._has_left = False
    self.state: Optional[rounds.RoundState] = None
    self.was_ended = False

  def begin(self):
    if self._optimizer.rounds is None:
      raise ValueError(  # it begins as TensorFlow's does
        "SyncReplicasOptimizer.apply_gradient should be called before using the hook: call "
        "apply_gradients or minimize first")
    self._optimizer.join_by_hook()
    self._join()  # builds the operation before the graph is final

  def _join(self) -> tf.Operation:
    return (self._optimizer.chief_init_op if self._is_chief
            else self._optimizer.local_step_init_op)

  def after_create_session(self, session, coord):
    self._stop()
    optimizer = self._optimizer
    if optimizer.needs_others and not session.sess_str:
      raise ValueError(
        "every update needs %d replicas, and a session without a master is this process's own, so "
        "no other replica can join. Give master=server.target, or make it "
        "replicas_to_aggregate=1" % optimizer.rules.aggregate)
    # The chief of a run clears the state; only sessions and servers of tf1ps belong to a run.
    is_of_run = isinstance(session, BoundedSession) and latest_record() is not None
    # A chief that has left does not undo an end of training, because the others' rounds go on.
    session.run(self._join(), {optimizer.may_begin: int(not (is_of_run or self._has_left))})
    if self._has_left:  # this session only waits for the others
      _change(session, optimizer, optimizer.leave_op)
      return
    self._watch = _Watch(optimizer, session, coord, self._start_timeout)

  def leave(self, session, finished: bool = True):
    """Leaves; does nothing the second time. A chief leaves before it waits for the others' end.

    After a signal (not `finished`) training does not end for the others: with on_uneven "stop_all"
    the heartbeats report that this replica has failed.
    """
    if self._has_left:
      return
    self._stop()
    self._has_left = True  # if this session fails, the next session leaves immediately
    if not finished and self._optimizer.rules.policy.ends_all:
      return
    self.was_ended = bool(rounds.view_rounds(session.run(self._optimizer.look)).ended)
    _change(session, self._optimizer, self._optimizer.leave_op)
    self.state = rounds.view_rounds(session.run(self._optimizer.look))

  def end_all(self, session):
    """Ends training for all replicas, on a chief that no longer waits for the others."""
    _change(session, self._optimizer, self._optimizer.end_op)

  def end(self, session):
    self.leave(session)

  def awaited(self) -> Tuple[int, List[str]]:
    """Returns the round at the last look, and the names of the replicas that it waits for.

    The list is empty while this replica's own gradient is missing, too.
    """
    state = None if self._watch is None else self._watch.seen
    if state is None or not state.arrived[self._optimizer.rounds.index]:
      return -1 if state is None else state.round, []
    return state.round, [self._watch.names[i] for i in self._watch.missing(state)]

  def _stop(self):
    if self._watch is not None:
      self._watch.stop()
      self._watch = None


class _Watch:
  """A thread that looks for replicas that the round waits for and that will not arrive."""

  def __init__(self, optimizer, session, coord, start_timeout):
    self._start_timeout, self._optimizer, self._session = start_timeout, optimizer, session
    self._coord = coord
    self._record = latest_record()
    self.seen: Optional[rounds.RoundState] = None  # at the last look
    self.names = lost_replicas.names(optimizer.rules.replicas, self._record)
    self._reported: List[int] = []
    self._seen_round = -1
    self._seen_own = None
    self._stopped = threading.Event()
    self._thread = threading.Thread(target=self._work, daemon=True, name="tf1ps: rounds")
    self._thread.start()

  def stop(self):
    self._stopped.set()
    self._thread.join(TIMING.steps_end_limit)

  def _work(self):
    beats = lost_replicas.LostReplicas(self._record, self._start_timeout)
    try:
      while not self._stopped.wait(TIMING.heartbeat_interval) and not self._coord.should_stop():
        try:
          self._look(beats)
        except (tf.errors.InvalidArgumentError, tf.errors.AbortedError) as error:
          self._abort(error)  # a replica that waits for its token does not see the error
        except (tf.errors.OpError, ControlError, RuntimeError) as error:
          _log.debug("the replicas were not looked at: %s", error_line(error))
    finally:
      beats.close()

  def _abort(self, error):
    if isinstance(self._session, BoundedSession):
      self._session.abort(lambda: error)

  def missing(self, state: rounds.RoundState) -> List[int]:
    """Returns the indices of the replicas whose gradients are still missing in the round."""
    return [i for i in range(self._optimizer.rules.replicas)
            if not (state.arrived[i] or state.padding[i] or state.left[i])]

  def _look(self, beats):
    optimizer = self._optimizer
    self.seen = state = rounds.view_rounds(self._session.run(optimizer.look))
    index = optimizer.rounds.index
    own = (state.computes_for[index], state.taken[index], state.stale[index], state.joins)
    stays, self._seen_own = own == self._seen_own and not state.arrived[index], own
    is_running = isinstance(self._session, BoundedSession) and self._session.is_running
    if state.updating or stays and is_running:
      # This takes the lock, and fails if an update was interrupted.
      self._session.run(optimizer.resend, options=_limit())
    stands = state.round == self._seen_round and not state.ended and not state.updating
    self._seen_round = state.round
    if not stands:
      return
    reasons = beats.lost(self.missing(state))
    if reasons:
      self._lose(state, reasons)

  def _lose(self, state, reasons: Dict[int, str]):
    optimizer = self._optimizer
    rules = optimizer.rules
    text = "; ".join("%s %s" % (self.names[i], reasons[i]) for i in sorted(reasons))
    away = {i for i in range(rules.replicas) if state.left[i] and not state.padding[i]}
    remaining = rules.replicas - len(away.union(reasons))
    if optimizer.leaver is not None and remaining > 0:
      for i in sorted(reasons):
        _change(self._session, optimizer, optimizer.leave_op, {optimizer.leaver: i})
      _log.warning("%s: %d of %d replicas continue", text, remaining, rules.replicas)
    elif remaining >= rules.aggregate:
      if sorted(reasons) != self._reported:
        _log.warning("%s: %d replicas remain, and %d make an update", text, remaining,
                     rules.aggregate)
      self._reported = sorted(reasons)
    else:
      self._abort(ReplicaLostError(
        "%s: %d of %d replicas remain, and every update needs %d. Start the job again; "
        "with --on_uneven=shrink or spare replicas (--sync_replicas=N), which are arguments of "
        "SyncReplicasOptimizer, too, it goes on without the lost replica." % (
          text, remaining, rules.replicas, rules.aggregate)))


def _change(session, optimizer, operation, feed=None):
  """Changes the rounds, and makes the update if the change finishes the round.

  The limit applies to the wait for the lock. The run itself has no limit, because a run that
  TensorFlow ends during the update leaves a partial update. So this function waits while any
  replica makes an update.
  """
  def is_updating():
    return bool(rounds.view_rounds(session.run(optimizer.look, options=_limit())).updating)

  call_within(TIMING.lock_limit, "waiting for the lock of the rounds", session.run, operation, feed,
              extend=is_updating)


def _limit():
  return tf.RunOptions(timeout_in_ms=int(1000 * TIMING.lock_limit))
