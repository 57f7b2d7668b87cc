"""What becomes of the measured staleness: a count for each worker, a histogram in the summaries.

1. The first session of this process sets its tables of ages to zero (replication/staleness.py).
2. Each step counts the age of its gradient there, of which nothing comes back.
3. The tables are read every few seconds and at the end, each in a run of its own.
4. Where a ps was started again its table is new: what was last read of the old one is kept.
"""

from __future__ import annotations

import time
from typing import List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.replication import AGE_TABLE_SIZE, Ages, AgeTable, read_ages
from tf1ps.training import progress

TAG = "staleness"


class StalenessRecorder(LifecycleHook):
  """Collects the ages of this worker's gradients.

  Attributes:
    dropped: how many gradients were not applied.
  """

  def __init__(self, tables: List[AgeTable], fetches,
               tracker: GlobalStepTracker, directory: Optional[str] = None,
               every_secs: float = 5.0):
    """Creates the hook.

    Args:
      tables: of the replicas that this process trains; it stands before the hooks of others than
        the first.
      fetches: an `execution.Fetches` whose step counts the age of its gradient.
      tracker: the tracker, which stands before this hook.
      directory: where the event files go; None writes none.
      every_secs: seconds between two readings of the tables, at least.
    """
    self._tables = tables
    self._fetches = fetches
    self._names = [name for name in ("counted", "taken") if fetches.fetch(name) is not None]
    self._tracker = tracker
    self._directory = directory
    self._every_secs = every_secs
    self._next = 0.0
    self._has_begun = self._has_left = False
    # The sum of the tables that went with their ps, as of the last reading.
    self._before = np.zeros([AGE_TABLE_SIZE], np.int64)
    self._now = np.zeros([len(tables), AGE_TABLE_SIZE], np.int64)
    self.dropped = 0

  @property
  def ages(self) -> Ages:
    """Those of the gradients that were applied, over recoveries, as of the last reading."""
    return read_ages([self._before, *self._now])

  def after_create_session(self, session, coord):
    if not self._has_begun or not all(session.run([t.is_initialized for t in self._tables])):
      # They live on one ps.
      self._before += self._now.sum(0)
      self._now = np.zeros_like(self._now)
      session.run([table.reset for table in self._tables])
    self._has_begun = True

  def before_run(self, run_context):
    return tf.train.SessionRunArgs({name: self._fetches.fetch(name) for name in self._names})

  def after_run(self, run_context, run_values):
    taken = run_values.results.get("taken", True)
    self.dropped += 0 if taken is True else progress.as_list(taken).count(False)
    if self._tracker.asked and time.monotonic() >= self._next:
      self._next = time.monotonic() + self._every_secs
      self._read(run_context.session)
      self._write()

  def leave(self, session, finished=True):
    """Reads the tables while the ps is sure to be there."""
    self._read_last(session)
    self._has_left = True

  def end(self, session):
    if not self._has_left:
      self._read_last(session)
    self._write()

  def _read(self, session, options=None):
    self._now = np.stack(session.run([table.read for table in self._tables], options=options))

  def _read_last(self, session):
    try:
      self._read(session, tf.RunOptions(timeout_in_ms=int(1000 * TIMING.last_read_limit)))
    except (tf.errors.OpError, RuntimeError):
      pass  # what was read before is what is known

  def _write(self):
    ages = self.ages
    if self._directory is not None and ages.gradients:
      summary = tf.Summary(value=[tf.Summary.Value(tag=TAG, histo=ages.histogram())])
      tf.summary.FileWriterCache.get(self._directory).add_summary(summary, self._tracker.value)
