"""The hook of `SyncReplicasOptimizer`: joins, watches the others, leaves.

In each session it joins before the first step. Beside the loop, once a second, a thread

1. looks whether the present turn waits for replicas that are lost, have ended or do not come, as
   the heartbeats say (lost_replicas.py). With on_uneven "shrink" they are dropped, so that the
   others go on; with enough spare replicas nothing is lost; else the session ends with
   `ReplicaLostError`, which names them;
2. gives a replica that waits, though its turn is over, another token: a run that was cut off may
   have taken the first.

At the end of the loop the replica leaves. A chief that waits for the others then ends training for
whoever has not come by then: a lost one that comes back finds the end, and does not train on after
the last checkpoint. A replica that ends with an error says so by its heartbeat. Without a
`tf1ps.Server` there are no heartbeats, and nobody is seen to be lost.
"""

from __future__ import annotations

import logging
import threading
from typing import Dict, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.compat import TIMING, Error, error_line
from tf1ps.replication import lost_replicas, turn_book, turns
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")


class ReplicaLostError(Error, RuntimeError):
  """A replica that every update waits for is lost, or has ended."""


class SyncReplicasHook(tf.train.SessionRunHook):
  """Joins at the begin of each session and leaves at the end.

  Attributes:
    book: the `turn_book.BookView` as of the end; None before.
    was_ended: whether another replica's end has ended training before this one left.
  """

  def __init__(self, optimizer, is_chief: bool, start_timeout: float = 60.0):
    """Creates the hook; use `SyncReplicasOptimizer.make_session_run_hook`.

    Args:
      optimizer: the `SyncReplicasOptimizer`.
      is_chief: whether this replica is the chief.
      start_timeout: seconds that the others may take to come.
    """
    if not start_timeout > 0:
      raise ValueError("start_timeout must be a positive number of seconds, got %r" % (
        start_timeout,))
    self._start_timeout = start_timeout
    self._optimizer = optimizer
    self._is_chief = is_chief
    self._watch: Optional[_Watch] = None
    self._has_left = False
    self.book: Optional[turn_book.BookView] = None
    self.was_ended = False

  def begin(self):
    if self._optimizer.turns is None:
      raise ValueError("SyncReplicasOptimizer.apply_gradients should be called before a session of "
                       "its hook")

  def after_create_session(self, session, coord):
    self._stop()
    optimizer = self._optimizer
    # A session of ours on a server of ours is of a run, whose chief wipes the book.
    is_of_run = hasattr(session, "abort") and latest_record() is not None
    session.run(optimizer.chief_init_op if self._is_chief else optimizer.local_step_init_op,
                {optimizer.may_begin: int(not is_of_run)})
    if self._has_left:  # this session only waits for the others
      session.run(optimizer.leave_op, options=_limit())
      return
    self._watch = _Watch(optimizer, session, coord, self._start_timeout)

  def leave(self, session, has_done_its_part: bool = True):
    """Leaves; does nothing the second time. A chief that waits for the others does it before.

    Args:
      session: the session.
      has_done_its_part: if not (after a signal), it is no end of training for the others: with
        on_uneven "stop_all" they learn from the heartbeats that this replica has failed.
    """
    if self._has_left:
      return
    self._stop()
    self._has_left = True  # the next session leaves at once, should this one fail
    if not has_done_its_part and self._optimizer.rules.on_uneven == turns.STOP_ALL:
      return
    self.was_ended = turn_book.view(session.run(self._optimizer.look)).ended
    session.run(self._optimizer.leave_op, options=_limit())
    self.book = turn_book.view(session.run(self._optimizer.look))

  def end_all(self, session):
    """Ends training for all; for a chief that has waited for the others, and will not any more."""
    session.run(self._optimizer.end_op, options=_limit())

  def end(self, session):
    self.leave(session)

  def _stop(self):
    if self._watch is not None:
      self._watch.stop()
      self._watch = None


class _Watch:
  """Looks, once a second, whether the turn waits for somebody who will not come."""

  def __init__(self, optimizer, session, coord, start_timeout):
    self._start_timeout = start_timeout
    self._optimizer = optimizer
    self._session = session
    self._coord = coord
    self._record = latest_record()
    self._names = lost_replicas.names(optimizer.rules.replicas, self._record)
    self._has_said: List[int] = []
    self._seen_turn = -1
    self._seen_own = None
    self._stopped = threading.Event()
    self._thread = threading.Thread(target=self._work, daemon=True, name="tf1ps: turns")
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
          if hasattr(self._session, "abort"):  # who waits for a token would never hear of it
            self._session.abort(lambda error=error: error)
        except (tf.errors.OpError, ControlError, RuntimeError) as error:
          _log.debug("the replicas were not looked at: %s", error_line(error))
    finally:
      beats.close()

  def _look(self, beats):
    optimizer = self._optimizer
    book = turn_book.view(self._session.run(optimizer.look))
    index = optimizer.turns.index
    own = (book.known[index], book.taken[index], book.stale[index], book.joins)
    stays, self._seen_own = own == self._seen_own and not book.came[index], own
    if book.updating or stays and getattr(self._session, "is_running", False):
      # Under the lock; it fails if an update was cut off.
      self._session.run(optimizer.nudge, options=_limit())
    stands = book.turn == self._seen_turn and not book.ended and not book.updating
    self._seen_turn = book.turn
    if not stands:
      return
    awaited = [i for i in range(optimizer.rules.replicas)
               if not (book.came[i] or book.padding[i] or book.gone[i])]
    reasons = beats.lost(awaited)
    if reasons:
      self._lose(book, reasons)

  def _lose(self, book, reasons: Dict[int, str]):
    optimizer = self._optimizer
    rules = optimizer.rules
    said = "; ".join("%s %s" % (self._names[i], reasons[i]) for i in sorted(reasons))
    away = {i for i in range(rules.replicas) if book.gone[i] and not book.padding[i]}
    left = rules.replicas - len(away.union(reasons))
    if optimizer.leaver is not None and left > 0:
      for i in sorted(reasons):
        self._session.run(optimizer.leave_op, {optimizer.leaver: i}, options=_limit())
      _log.warning("%s: the other %d go on without it", said, left)
    elif left >= rules.aggregate:
      if sorted(reasons) != self._has_said:
        _log.warning("%s: %d are left, and %d make an update", said, left, rules.aggregate)
      self._has_said = sorted(reasons)
    elif hasattr(self._session, "abort"):
      text = ("%s: of %d replicas %d are left, and every update needs %d: have it started again, "
              "or use --on_uneven=shrink, or spare replicas (--replicas_to_aggregate)" % (
                said, rules.replicas, left, rules.aggregate))
      self._session.abort(lambda: ReplicaLostError(text))


def _limit():
  return tf.RunOptions(timeout_in_ms=int(1000 * TIMING.lock_limit))
