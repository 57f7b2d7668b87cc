"""Records the measured staleness: counts per worker, and a histogram in the summaries.

1. The first session of this process sets its tables of ages to zero (replication/staleness.py).
2. Each step counts the age of its gradient in a table on the ps. The step returns no age.
3. The hook reads the tables every few seconds and at the end, in separate runs.
4. A restarted ps has new tables. The hook keeps the counts that it last read from the old tables.
"""

from __future__ import annotations

import time
from typing import List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.replication import AGE_TABLE_SIZE, Ages, AgeTable, read_ages
from tf1ps.session import write_summary
from tf1ps.training.counts import Counts

TAG = "staleness"


class StalenessRecorder(LifecycleHook):
  """Collects the ages of this worker's gradients."""

  def __init__(self, tables: List[AgeTable], counts: Counts, directory: Optional[str] = None,
               every_secs: float = 5.0):
    """Creates the hook; it comes after the tracker, and before the threads of other replicas.

    Args:
      tables: the tables of the replicas that this process trains.
      counts: the loop's ledger; the loop's step counts the age of its gradient.
      directory: the directory of the event files; None writes none.
      every_secs: the least number of seconds between two readings of the tables.
    """
    self._tables, self._fetches = tables, counts.fetches
    self._tracker, self._directory, self._every_secs = counts.tracker, directory, every_secs
    self._next = 0.0
    self._has_begun = self._has_left = False
    # The sum of the last readings of tables whose ps has ended.
    self._before = np.zeros([AGE_TABLE_SIZE], np.int64)
    self._now = np.zeros([len(tables), AGE_TABLE_SIZE], np.int64)

  @property
  def ages(self) -> Ages:
    """The ages of the applied gradients, over recoveries, as of the last reading."""
    return read_ages([self._before, *self._now])

  def after_create_session(self, session, coord):
    if not self._has_begun or not all(session.run([t.is_initialized for t in self._tables])):
      # One ps holds all tables.
      self._before += self._now.sum(0)
      self._now = np.zeros_like(self._now)
      session.run([table.reset for table in self._tables])
    self._has_begun = True

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._fetches.fetch("counted"))

  def after_run(self, run_context, run_values):
    if self._tracker.asked and time.monotonic() >= self._next:
      self._next = time.monotonic() + self._every_secs
      self._read(run_context.session)
      self._write()

  def leave(self, session, finished=True):
    """Reads the tables before the ps may end."""
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
      pass  # The earlier reading stays.

  def _write(self):
    ages = self.ages
    if self._directory is not None and ages.gradients:
      summary = tf.Summary(value=[tf.Summary.Value(tag=TAG, histo=ages.histogram())])
      write_summary(self._directory, summary, self._tracker.value)
