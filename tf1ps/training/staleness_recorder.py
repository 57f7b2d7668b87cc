"""What becomes of the measured staleness: a count in each worker, a histogram in the summaries.

The age of each gradient comes along with the training step (replication/staleness.py).
"""

from __future__ import annotations

import time
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.replication import staleness
from tf1ps.training import global_step

TAG = "staleness"


class StalenessRecorder(tf.train.SessionRunHook):
  """Collects the ages of this worker's gradients.

  Attributes:
    ages: the `staleness.Ages` of those that were applied, over recoveries.
    dropped: how many were not applied.
  """

  def __init__(self, age: tf.Tensor, tracker: global_step.GlobalStepTracker,
               directory: Optional[str] = None, every_secs: float = 5.0,
               taken: Optional[tf.Tensor] = None):
    """Creates the hook.

    Args:
      age: of the training step's gradient, as `staleness.age` returns it.
      tracker: the tracker, which stands before this hook.
      directory: where the event files go; None writes none.
      every_secs: seconds between two histograms, at least.
      taken: a bool scalar tensor: whether the gradient is applied; None: always.
    """
    self._fetches = {"age": age} if taken is None else {"age": age, "taken": taken}
    self._tracker = tracker
    self._directory = directory
    self._every_secs = every_secs
    self._next = 0.0
    self.ages = staleness.Ages()
    self.dropped = 0

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._fetches)

  def after_run(self, run_context, run_values):
    if run_values.results.get("taken", True):
      self.ages.add(run_values.results["age"])
    else:
      self.dropped += 1
    if self._directory is not None and self._tracker.asked and time.monotonic() >= self._next:
      self._next = time.monotonic() + self._every_secs
      self._write()

  def end(self, session):
    if self._directory is not None and self.ages.gradients:
      self._write()

  def _write(self):
    summary = tf.Summary(value=[tf.Summary.Value(tag=TAG, histo=self.ages.histogram())])
    tf.summary.FileWriterCache.get(self._directory).add_summary(summary, self._tracker.value)
