"""Training on leased ranges of the data (`--shard=dynamic`).

1. When the job's state begins, the chief writes the table of ranges: a new table, or the table
   beside the checkpoint. Each session returns the leases of this task's earlier session, and begins
   a pass.
2. After each step the hook counts the trained examples of each range. Datasets of `tf1ps.pipeline`
   report the range of each record. For other inputs that keep the order of the records, the hook
   counts examples in that order. For inputs that do neither, all ranges of an epoch are done at the
   end of the epoch's pass.
3. At the end of a pass the next pass begins (`begin_next_pass`), on returned ranges or on the next
   epoch. While other workers hold leases this worker waits, since they may return them.
4. With each checkpoint the chief saves the table, in a file beside the checkpoint.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import read_beside
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.pipeline import (
  LeaseState,
  LeaseTable,
  Shard,
  StaleSessionError,
  iterator_initializers,
)
from tf1ps.replication import is_end_of_replicas
from tf1ps.session import Membership, SessionLifecycle
from tf1ps.state import MEMBER_SERVING, ControlError, ControlTable
from tf1ps.training import execution
from tf1ps.training import step as step_lib

_log = logging.getLogger("tf1ps")
SUFFIX = ".ranges.json"  # of the table's file beside a checkpoint


def make(shard: Shard, batch_examples: tf.Tensor, **kwargs) -> List["DynamicRanges"]:
  """Returns [the hook] for a shard that leases ranges, else []; the arguments are the hook's."""
  return [] if shard.leased is None else [DynamicRanges(shard, batch_examples, **kwargs)]


def report_fetches(shard: Shard) -> list:
  """Returns the shard's range reports as lists, for fetches that take lists and dicts."""
  return [list(report) for report in shard.range_reports]


class DynamicRanges(LifecycleHook):
  """Keeps the leases of a session's shard.

  Attributes:
    again: the examples that all workers trained on in returned ranges, as of the last look.
    is_done: whether all ranges of all epochs were done, as of the last look.
  """

  def __init__(self, shard: Shard, batch_examples: tf.Tensor, waits: bool = True,
               is_over: Callable[[int], bool] = lambda step: False):
    """Creates the hook.

    Args:
      shard: the shard that input_fn has used.
      batch_examples: the size of a batch, an int [] tensor; or an `execution.Fetches` whose "more"
        is `report_fetches()`.
      waits: whether to wait for leases of other workers when no range is free. False where the
        other workers' steps need this worker.
      is_over: returns whether training ends at a global step; at the end the hook does not wait.
    """
    self._shard = shard
    self._leased: Any = shard.leased  # there are leases, see `make`
    self._fetches, self._waits, self._is_over = batch_examples, waits, is_over
    if tf.is_tensor(batch_examples):
      self._fetches = execution.Fetches(
        step_lib.Step(None, None, batch_examples), more=report_fetches(shard))
    self._table: LeaseTable  # on_join sets it and the next two attributes
    self._lifecycle: SessionLifecycle
    self._membership: Membership
    self._note: Callable[[int, list], None] = self._note_unknown
    self._look_at = 0.0
    self.is_done = self._was_done = False
    self._totals: Dict[int, int] = {}  # the size of each range that was read to its end
    self.again = 0

  @property
  def has_gone_back(self) -> bool:
    """Whether all ranges were done at the loop's end, but the restored state has open ranges."""
    return self._was_done and not self.is_done

  def on_join(self, lifecycle: SessionLifecycle) -> None:
    membership = lifecycle.membership
    if membership is None:
      raise ValueError("--shard=dynamic needs a cluster: train on the target of a tf1ps.Server.")
    self._lifecycle, self._membership = lifecycle, membership
    self._table = LeaseTable(
      ControlTable(membership.record.target, membership.cluster.task,
                   membership.cluster.control_task),
      membership.record.container, self._leased.digest, self._shard.epochs)

  def texts_beside_checkpoint(self) -> Dict[str, str]:
    return {SUFFIX: self._table.to_json()}

  def begin(self) -> None:
    blocks, leases = self._leased.blocks, self._leased.leases
    self._reports = report_fetches(self._shard)
    if self._reports:
      self._note = self._note_reports
    elif blocks is not None and blocks.order_is_kept():
      self._note = lambda examples, unused_reports: blocks.trained(examples)
    else:
      leases.by_epoch = True
      _log.info("the input pipeline may change the order of the records. So all ranges of an epoch "
                "are done at the end of its pass.")

  def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
    return tf.train.SessionRunArgs((self._fetches.fetch("size"), self._fetches.fetch("more")))

  def after_run(self, run_context: tf.train.SessionRunContext,
                run_values: tf.train.SessionRunValues) -> None:
    examples, reports = run_values.results
    for step in zip(examples, reports) if np.ndim(examples) else [run_values.results]:
      self._note(int(step[0]), step[1])
    if self._membership.is_chief and time.monotonic() > self._look_at:
      self._look_at = time.monotonic() + TIMING.lost_check_interval
      self._try(lambda: self._table.change(self._look))

  def finish_steps(self, session: tf.train.MonitoredSession) -> None:
    self._was_done = self.is_done  # before a recovery at the end

  def leave(self, session: tf.Session, finished: bool = True) -> None:
    """Returns the leases, so that other workers train on their ranges."""
    self._try(self._leased.leases.release)
    self._try(lambda: self._table.change(self._look))

  def end(self, session: tf.Session) -> None:
    if self.has_gone_back:  # the other workers may have trained on the open ranges since
      self._try(lambda: self._table.change(self._look))
    self._leased.leases.end()
    self._table.close()

  def _try(self, function):
    try:
      function()
    except (ControlError, StaleSessionError) as error:
      _log.info("the table of the data's ranges cannot be read: %s", error)

  def _note_unknown(self, examples, unused_reports):
    """Counts a batch whose ranges are unknown."""
    for range_ in self._leased.leases.held()[:1]:
      self._leased.leases.note_trained(range_, examples, is_done=False)

  def _note_reports(self, unused_examples, reports):
    leases = self._leased.leases
    trained = np.concatenate([trained for trained, _, _ in reports])
    for range_, count in zip(*np.unique(trained, return_counts=True)):
      leases.note_trained(int(range_), int(count), is_done=False)
    for _, ended, sizes in reports:
      self._totals.update(zip(ended.tolist(), sizes.tolist()))
    for range_, total in list(self._totals.items()):
      if leases.trained_of(range_) >= total:
        leases.note_trained(range_, 0, is_done=True)
        del self._totals[range_]

  # Sessions.

  def on_state_begun(self, session: tf.Session, checkpoint: Optional[str]) -> None:
    count, records, blocks = self._leased.count, None, self._leased.blocks
    if blocks is not None:
      # Counting the records may read a lookup table.
      session.run(session.graph.get_collection(tf.GraphKeys.LOCAL_INIT_OP))
      count, records = blocks.count(session), blocks.records
    saved = None
    if checkpoint is not None:
      saved = read_beside(checkpoint, SUFFIX, LeaseState.check,
                          "It has the table of ranges of the data: the epochs start from the "
                          "beginning")
    self._table.begin(count, records, saved)

  def on_session_opened(self, session: tf.Session) -> None:
    self._table.attach()
    if self._leased.blocks is not None:
      self._leased.blocks.records = self._table.records
    self._totals.clear()
    try:
      self._leased.leases.begin_session(self._table.change)
      if self.is_done:  # a restored table may have open ranges
        self._table.change(self._look)
    except StaleSessionError as error:  # The creator of the session tries again.
      raise ControlError(str(error)) from error

  # The end of a pass.

  def begin_next_pass(self, session: tf.train.MonitoredSession,
                      error: tf.errors.OutOfRangeError) -> bool:
    """Begins another pass, if one is left; returns whether a further batch comes.

    Args:
      session: the `MonitoredSession`.
      error: the error of the step that reached the end.
    """
    if is_end_of_replicas(error):
      return False
    sessions = self._lifecycle.sessions
    changed_at, seen = time.monotonic(), None
    is_noted = False
    while self._lifecycle.signum is None:
      step = session.call_inside(self._lifecycle.tracker.ask)
      if self._lifecycle.sessions != sessions:
        return True  # The new session has begun a pass.
      try:
        if not is_noted:
          if not self._pass_has_ended():
            return False
          is_noted = True
        value, has_more = self._table.change(self._look)
        if has_more and self._leased.leases.begin_pass():
          session.call_inside(lambda inside: inside.run(iterator_initializers(
            inside.graph, only_task=self._membership.cluster.task.name)))
          return True
        if self.is_done or not self._waits or self._is_over(step):
          return False
        if value != seen:
          changed_at, seen = time.monotonic(), value
      except (ControlError, StaleSessionError) as problem:
        _log.info("the table of the data's ranges cannot be read: %s", problem)
      if time.monotonic() - changed_at > self._lifecycle.settings.end_timeout:
        _log.warning("other workers hold ranges of the data and have made no progress for %.0f s "
                     "(end_timeout)",
                     self._lifecycle.settings.end_timeout)
        return False
      threading.Event().wait(TIMING.poll_interval)
    return False  # After a signal the session ends as at the end of the data, and saves.

  def _pass_has_ended(self):
    """Notes the end of a pass; returns False if the input ended before its leased ranges."""
    leases = self._leased.leases
    if not leases.was_asked:
      raise RuntimeError(
        "the input ended without leasing a range of the data. Under --shard=dynamic it must "
        "start again when its iterator is initialised again, without a feed.")
    if leases.finish_pass():
      return True
    _log.warning("the input pipeline ended before the end of its leased ranges. Other workers "
                 "train on them.")
    return False

  def _look(self, state):
    """Frees the leases of workers that left or are lost; returns (the value, has_more)."""
    membership = self._lifecycle.membership
    members = {member.name: member for member in membership.heartbeat.members()}
    for owner in sorted(state.owners - {self._shard.index}):
      name = membership.cluster.replicas[owner].name
      member = members.get(name)
      if member is not None and (member.has_ended or member.state == MEMBER_SERVING
                                 or membership.heartbeat.is_lost(member)):
        back = state.return_leases(owner)
        _log.warning("%s left or is lost. Other workers train on its %d leased ranges of the data.",
                     name, len(back))
    self.again, self.is_done = state.repeated_examples, state.is_done
    return state.value, state.has_more
