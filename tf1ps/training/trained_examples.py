"""The examples that a job has trained on before: `--examples` is a total, over all its starts.

1. Beside each checkpoint the chief keeps `model.ckpt-N.examples.json`: the run's id, the examples
   before the run, and those of all workers in the run, as of their last heartbeats.
2. When the chief has restored a checkpoint, its heartbeats tell the other workers the sum of both
   numbers.
   Each worker's part is a share of the examples that are left.
   In a new run the workers count from 0, because the file has the examples of the earlier runs.
3. A chief that returns to its run finds the run's own id in the file. The number of examples before
   the run then stays the same, because each worker continues its own count. If the ps has lost
   these counts, the examples that no living worker counts become examples before the run.
"""

from __future__ import annotations

import json
import logging
from typing import Dict, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import latest_checkpoint, read_beside
from tf1ps.cluster import LifecycleHook
from tf1ps.session import Membership
from tf1ps.training import options as options_lib
from tf1ps.training.counts import Counts

_log = logging.getLogger("tf1ps")
SUFFIX = ".examples.json"  # of the file beside a checkpoint


class TrainedExamples(LifecycleHook):
  """Finds the examples before this run, and keeps their number beside each checkpoint."""

  def __init__(self, run: Membership, options: options_lib.Options, counts: Counts):
    self._run, self._options, self._counts = run, options, counts
    self._run_id = ""  # of the run whose examples `counts` has
    self._restored: Optional[str] = None

  def on_state_begun(self, session, checkpoint) -> None:
    self._restored = checkpoint

  def on_session_opened(self, session) -> None:
    if self._run_id == self._run.run_id:
      return  # after a recovery the workers continue their counts
    if self._run_id:
      self._counts.examples = 0
    self._run_id = self._run.run_id
    if self._run.is_chief:
      before = self._read()
      self._run.heartbeat.set(job_examples=before)
    else:
      chief = self._run.find_chief()
      before = 0 if chief is None else chief.job_examples
    self._counts.examples_before = before
    if before and self._options.examples:
      _log.info("before this start, the job trained on %d examples, of --examples=%d", before,
                self._options.examples)

  def _read(self) -> int:
    """Returns the number of examples before this run; 0 if the checkpoint does not have it."""
    checkpoint = self._restored
    if checkpoint is None and self._options.checkpoint_dir:  # the ps kept the run's state
      checkpoint = latest_checkpoint(self._options.checkpoint_dir)
    if checkpoint is None:
      return 0
    if not self._options.examples and not tf.gfile.Exists(checkpoint + SUFFIX):
      return 0  # the checkpoint is another program's or an older release's, and no goal needs them
    kept = read_beside(checkpoint, SUFFIX, _parse, "The number of examples begins at 0")
    if kept is None:
      return 0
    return kept["before"] + kept["examples"] - self._counted(kept)

  def _counted(self, kept) -> int:
    """Returns how many examples in the file the workers of its run still count by themselves."""
    if kept["run"] != self._run.run_id:
      return 0
    heartbeat = self._run.heartbeat
    # Before the first heartbeat, it is not known whether the ps has lost the counts.
    if heartbeat.previous is not None or heartbeat.silence is None:  # the ps has kept the counts
      return kept["examples"]
    return min(kept["examples"], examples_of_run(self._run, self._counts))

  def texts_beside_checkpoint(self) -> Dict[str, str]:
    kept = {"run": self._run.run_id, "before": self._counts.examples_before,
            "examples": examples_of_run(self._run, self._counts)}
    return {SUFFIX: json.dumps(kept)}


def _parse(text: str) -> dict:
  kept = json.loads(text)
  return {"run": kept["run"], "before": int(kept["before"]), "examples": int(kept["examples"])}


def examples_of_run(run: Membership, counts: Counts) -> int:
  """Returns the examples of all workers in a run, as of their last heartbeats."""
  own = run.cluster.task.name
  return counts.examples + sum(
    member.examples for member in run.members()
    if member.run == run.run_id and member.role == "worker" and member.name != own)
