"""The epochs that a job has finished: `--epochs` is a total, however often the job is started.

1. Beside each checkpoint the chief keeps how often the job has gone through its data, in
   `model.ckpt-N.epochs.json`. The number rises when all workers have gone through their data.
2. At its start the chief reads the number of the latest checkpoint, and its heartbeats tell the
   other workers. So each worker builds its input for the epochs that are left.

This module does not count epochs under `--shard=dynamic`, where the table of ranges keeps the
finished epochs (dynamic_ranges.py), or with `--examples`, where a worker may end before its data
end.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Callable, Dict, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointError, read_beside, use_latest, verify_checkpoint
from tf1ps.cluster import LifecycleHook, TaskUnavailableError, probe_tasks
from tf1ps.compat import TIMING
from tf1ps.pipeline import SHARD_DYNAMIC, Shard
from tf1ps.session import Membership
from tf1ps.training import options as options_lib
from tf1ps.training.counts import Counts
from tf1ps.training.stops import Stops

_log = logging.getLogger("tf1ps")
SUFFIX = ".epochs.json"  # of the number's file beside a checkpoint


def are_counted(options: options_lib.Options) -> bool:
  """Whether the epochs of the job are counted here."""
  return bool(options.epochs) and not options.examples and options.shard != SHARD_DYNAMIC


def total_examples(session: tf.Session, shard: Shard, options: options_lib.Options,
                   replicas: int) -> Optional[int]:
  """Returns about how many examples --epochs takes; None if the input does not know its size.

  Args:
    session: this worker's session.
    shard: this worker's share; each other worker is assumed to have as many records.
    options: the job's options.
    replicas: the number of workers.
  """
  if not are_counted(options) or len(shard.sizes) != 1:
    return None
  try:
    records = int(session.run(shard.sizes[0])) if isinstance(
      shard.sizes[0], tf.Tensor) else shard.sizes[0]
  except tf.errors.OpError:  # the dataset needs values that only its iterator gets
    return None
  return records * replicas * options.epochs if records > 0 else None


def read_finished(options: options_lib.Options) -> int:
  """Returns the finished epochs of the latest checkpoint, on the chief; 0 if they are unknown."""
  if not are_counted(options) or not options.checkpoint_dir:
    return 0
  try:
    return use_latest(options.checkpoint_dir, _read) or 0
  except CheckpointError:
    return 0  # the session reports what is wrong with the checkpoint


def _read(checkpoint: str) -> int:
  """Returns the number of finished epochs of a checkpoint; raises DamagedCheckpointError."""
  finished = read_beside(checkpoint, SUFFIX, lambda text: int(json.loads(text)["epochs"]),
                         "The epochs begin at the first") or 0
  if finished:
    # The session would skip a damaged checkpoint, but only after the workers have built their
    # input. Only a job that had ended and was started again pays for this second read.
    verify_checkpoint(checkpoint)
  return finished


def finished_before(run: Membership, options: options_lib.Options,
                    check: Callable[[], None] = lambda: None) -> int:
  """Returns the epochs that the job has finished before; a worker waits for the chief's number.

  `check` is called during the wait, and raises an error to end the wait. Raises
  TaskUnavailableError if the chief does not start within `options.start_timeout`.
  """
  if not are_counted(options):
    return 0
  if run.is_chief:
    return run.heartbeat.get("epochs")
  began = time.monotonic()
  while True:
    chief, waited = run.find_chief(), time.monotonic() - began
    if chief is not None:
      return chief.epochs
    if waited > options.start_timeout:
      needed = [run.cluster.chief, *(task for task in run.state_tasks if task != run.cluster.chief)]
      raise TaskUnavailableError(
        probe_tasks(needed), waited, "the chief has sent no heartbeat")
    check()
    time.sleep(TIMING.fast_poll_interval)


class FinishedEpochs(LifecycleHook):
  """Keeps the number of finished epochs beside each checkpoint, on the chief."""

  def __init__(self, counts: Counts, total: int, stops: Stops,
               positions: Sequence[tf.Variable]):
    """Creates the hook.

    Args:
      counts: the loop's ledger, which knows the epochs before this start, and whether the data have
        ended.
      total: the number of epochs that the job must finish.
      stops: the stops of this worker; if a stop is reached, the epochs are not finished.
      positions: the positions of the workers' input, which mean nothing after the last epoch.
    """
    self._counts, self._epochs = counts, counts.epochs_before
    self._total, self._stops, self._positions = total, stops, positions
    self._clear: Sequence[tf.Operation] = []
    self._lifecycle = None

  def on_join(self, lifecycle) -> None:
    self._lifecycle = lifecycle

  def begin(self):
    self._clear = [position.assign(b"").op for position in self._positions]

  def end_all(self, session) -> None:
    # If a signal or an error ended a worker before its data ended, the lifecycle has a problem.
    ended = self._counts.data_ended or self._counts.was_ended
    if ended and not self._stops.is_reached and not self._lifecycle.problems:
      self._epochs = self._total
      if self._clear:
        session.run(self._clear)
        self._lifecycle.save_again()  # the last step's checkpoint may contain the positions

  def texts_beside_checkpoint(self) -> Dict[str, str]:
    return {SUFFIX: json.dumps({"epochs": self._epochs})}
