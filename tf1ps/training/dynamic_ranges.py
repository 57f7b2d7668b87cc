"""Training on ranges of the data that are handed out one by one (`--shard=dynamic`).

1. When the job's state begins, the chief writes the table of ranges: new, or as it was saved with
   the checkpoint. Each session returns what an earlier one of this task held, and begins a pass.
2. After each step the hook counts the examples of each range that were trained on. How exactly
   depends on the input: datasets of `tf1ps.pipeline` report the range of each record; blocks of
   records in an order that is kept are counted; else all ranges of an epoch are done at the end of
   its pass.
3. At the end of a pass another one begins (`begin_next_pass`), of ranges that came back or of the
   next epoch. While others still hold ranges it waits: they may be lost, or end without
   having done them.
4. With each checkpoint the chief keeps the table, in a file beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Dict, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.pipeline import (
  LeaseTable,
  Shard,
  StaleSessionError,
  iterator_initializers,
)
from tf1ps.replication import is_end_of_replicas
from tf1ps.state import MEMBER_SERVING, ControlError, ControlTable
from tf1ps.training import execution
from tf1ps.training import step as step_lib

_log = logging.getLogger("tf1ps")
SUFFIX = ".ranges.json"  # of the file beside a checkpoint


def make(shard: Shard, batch_examples: tf.Tensor, **kwargs) -> List["DynamicRanges"]:
  """The hook, where ranges are handed out to a shard; the arguments are the hook's.

  Returns:
    A list of it, or an empty one.
  """
  return [] if shard.leased is None else [DynamicRanges(shard, batch_examples, **kwargs)]


def report_fetches(shard: Shard) -> list:
  """Returns the shard's range reports as lists, for fetches that take lists and dicts."""
  return [list(report) for report in shard.range_reports]


class DynamicRanges(LifecycleHook):
  """Has a session train on the ranges that its shard leases.

  Attributes:
    again: examples trained on in ranges that came back, of all workers, as of the last look.
    is_done: whether all ranges of all epochs were done then.
  """

  def __init__(self, shard: Shard, batch_examples: tf.Tensor, waits: bool = True,
               is_over: Callable[[int], bool] = lambda step: False):
    """Creates the hook.

    Args:
      shard: after input_fn has asked it.
      batch_examples: the size of a batch, an int [] tensor; or an `execution.Fetches` whose "more"
        is `report_fetches()`.
      waits: whether to wait, when there is no lease to take, for what others hold; not where they
        need this worker for their steps.
      is_over: whether training ends at a global step; then nobody waits.
    """
    self._shard, self._leased = shard, shard.leased
    self._fetches, self._waits, self._is_over = batch_examples, waits, is_over
    if tf.is_tensor(batch_examples):
      self._fetches = execution.Fetches(
        step_lib.Step(None, None, batch_examples), more=report_fetches(shard))
    self._table: Optional[LeaseTable] = None
    self._lifecycle = None
    self._look_at = 0.0
    self.is_done = False
    self._totals: Dict[int, int] = {}  # records of the ranges that were read to their end
    self.again = 0

  def on_join(self, lifecycle) -> None:
    membership = lifecycle.membership
    if membership is None:
      raise ValueError("--shard=dynamic needs to know the cluster: train on the target of a "
                       "tf1ps.Server")
    self._lifecycle = lifecycle
    self._table = LeaseTable(
      ControlTable(membership.record.target, membership.cluster.task,
                   membership.cluster.control_task),
      membership.record.container, self._leased.digest, self._shard.epochs)

  def texts_beside_checkpoint(self) -> Dict[str, str]:
    return {SUFFIX: self._table.to_json()}

  def begin(self):
    blocks, leases = self._leased.blocks, self._leased.leases
    self._reports = report_fetches(self._shard)
    if self._reports:
      self._note = self._note_reports
    elif blocks is not None and blocks.order_is_kept():
      self._note = lambda examples, unused_reports: blocks.trained(examples)
    else:
      leases.by_epoch = True
      _log.info("a range of the data is done when all that was read of its epoch is: the input "
                "pipeline may change the order of the records")

  def before_run(self, run_context):
    return tf.train.SessionRunArgs((self._fetches.fetch("size"), self._fetches.fetch("more")))

  def after_run(self, run_context, run_values):
    examples, reports = run_values.results
    for each in zip(examples, reports) if np.ndim(examples) else [run_values.results]:
      self._note(int(each[0]), each[1])
    if self._lifecycle.membership.is_chief and time.monotonic() > self._look_at:
      self._look_at = time.monotonic() + TIMING.lost_check_interval
      self._try(lambda: self._table.change(self._look))

  def leave(self, session, finished=True):
    """Leaves the rest of the data to the other workers."""
    self._try(self._leased.leases.release)
    self._try(lambda: self._table.change(self._look))

  def end(self, session):
    self._leased.leases.end()
    self._table.close()

  def _try(self, function):
    try:
      function()
    except (ControlError, StaleSessionError) as error:
      _log.info("the ranges of the data cannot be looked at: %s", error)

  def _note(self, examples, unused_reports):
    """Counts a batch whose ranges are unknown."""
    for found in self._leased.leases.held()[:1]:
      self._leased.leases.note_trained(found, examples, is_done=False)

  def _note_reports(self, unused_examples, reports):
    leases = self._leased.leases
    trained = np.concatenate([trained for trained, _, _ in reports])
    for found, count in zip(*np.unique(trained, return_counts=True)):
      leases.note_trained(int(found), int(count), is_done=False)
    for _, ended, sizes in reports:
      self._totals.update(zip(ended.tolist(), sizes.tolist()))
    for found, total in list(self._totals.items()):
      if leases.trained_of(found) >= total:
        leases.note_trained(found, 0, is_done=True)
        del self._totals[found]

  # Sessions.

  def on_state_begun(self, session, checkpoint: Optional[str]) -> None:
    count, records, blocks = self._leased.count, None, self._leased.blocks
    if blocks is not None:
      # Counting may read a table.
      session.run(session.graph.get_collection(tf.GraphKeys.LOCAL_INIT_OP))
      count, records = blocks.count(session), blocks.records
    saved, path = None, "%s%s" % (checkpoint, SUFFIX)
    if checkpoint is not None and tf.gfile.Exists(path):
      with tf.gfile.GFile(path) as file:
        saved = file.read()
    elif checkpoint is not None:
      _log.warning("%s was saved without the table of ranges of the data (there is no %s). The "
                   "epochs start from the beginning.", checkpoint, path)
    self._table.begin(count, records, saved)

  def on_session_opened(self, session) -> None:
    self._table.attach()
    if self._leased.blocks is not None:
      self._leased.blocks.records = self._table.records
    self._totals.clear()
    try:
      self._leased.leases.begin_session(self._table.change)
    except StaleSessionError as error:  # worth another try
      raise ControlError(str(error)) from error

  # The end of a pass.

  def begin_next_pass(self, session, error: tf.errors.OutOfRangeError) -> bool:
    """Begins another pass, if there is one.

    Args:
      session: the `MonitoredSession`.
      error: how the end was told.

    Returns:
      Whether there is another batch to come.
    """
    if is_end_of_replicas(error):
      return False
    sessions = self._lifecycle.sessions
    changed_at, seen = time.monotonic(), None
    is_told = False
    while self._lifecycle.signum is None:
      step = session.call_inside(self._lifecycle.tracker.ask)
      if self._lifecycle.sessions != sessions:
        return True  # a new session, and with it a new pass
      try:
        if not is_told:
          if not self._pass_has_ended():
            return False
          is_told = True
        value, has_more = self._table.change(self._look)
        if has_more and self._leased.leases.begin_pass():
          session.call_inside(lambda inside: inside.run(iterator_initializers(
            inside.graph, only_task=self._lifecycle.membership.cluster.task.name)))
          return True
        if self.is_done or not self._waits or self._is_over(step):
          return False
        if value != seen:
          changed_at, seen = time.monotonic(), value
      except (ControlError, StaleSessionError) as problem:
        _log.info("the ranges of the data cannot be looked at: %s", problem)
      if time.monotonic() - changed_at > self._lifecycle.end_timeout:
        _log.warning("ranges of the data that other workers hold are not done, and nothing has "
                     "happened for %.0f s (--end_timeout)", self._lifecycle.end_timeout)
        return False
      threading.Event().wait(TIMING.poll_interval)
    return False  # after a signal; the session ends as at the end of the data, and saves

  def _pass_has_ended(self):
    """Notes the end of a pass; False if the pipeline has ended before it."""
    leases = self._leased.leases
    if not leases.was_asked:
      raise RuntimeError(
        "the input ended without asking for a range of the data. Under --shard=dynamic it must "
        "start again when its iterator is initialised again, without a feed.")
    if leases.finish_pass():
      return True
    _log.warning("the input pipeline ended before the ranges that it had leased; other workers "
                 "get them")
    return False

  def _look(self, state):
    """Takes back the leases of workers that left or are lost; returns (the value, has_more)."""
    membership = self._lifecycle.membership
    members = {member.name: member for member in membership.heartbeat.members()}
    for owner in sorted(state.owners - {self._shard.index}):
      name = membership.cluster.replicas[owner].name
      member = members.get(name)
      if member is not None and (member.has_ended or member.state == MEMBER_SERVING
                                 or membership.heartbeat.is_lost(member)):
        back = state.return_leases(owner)
        _log.warning("%s left or is lost; %d ranges of the data that it held are handed out again",
                     name, len(back))
    self.again, self.is_done = state.repeated_examples, state.is_done
    return state.value, state.has_more
