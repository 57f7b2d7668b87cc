"""The examples that a job has trained on before: `--examples` is a total, whenever it was started.

1. Beside each checkpoint the chief keeps `model.ckpt-N.examples.json`: the run's id, the examples
   before the run, and those of all workers in the run, as of their last heartbeats.
2. When the chief has restored a checkpoint, its heartbeats tell the other workers the sum of both.
   Each worker's part is of the examples that are left.
3. A chief that comes back into its run finds the run's own id in the file. The run's examples
   before then stay what they were, because each worker goes on with its own count.
"""

from __future__ import annotations

import json
import logging
from typing import Dict, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import latest_checkpoint
from tf1ps.cluster import LifecycleHook
from tf1ps.session import Membership
from tf1ps.training import options as options_lib
from tf1ps.training import progress

_log = logging.getLogger("tf1ps")
SUFFIX = ".examples.json"  # of the file beside a checkpoint


class TrainedExamples(LifecycleHook):
  """Knows the examples before this run, and keeps their number beside each checkpoint.

  Attributes:
    before: the examples that the job had trained on before this run; 0 until the first session.
  """

  def __init__(self, run: Membership, options: options_lib.Options,
               counter: progress.ExampleCounter):
    """Creates the hook; `counter` counts this worker's examples."""
    self._run, self._options, self._counter = run, options, counter
    self.before = 0
    self._is_known = False
    self._restored: Optional[str] = None

  def on_state_begun(self, session, checkpoint) -> None:
    self._restored = checkpoint

  def on_session_opened(self, session) -> None:
    if self._is_known:
      return  # after a recovery the workers count on
    self._is_known = True
    if self._run.is_chief:
      self.before = self._read()
      self._run.heartbeat.set(job_examples=self.before)
    else:
      chief = self._run.find_chief()
      self.before = 0 if chief is None else chief.job_examples
    if self.before and self._options.examples:
      _log.info("before this start, the job trained on %d examples, of --examples=%d", self.before,
                self._options.examples)

  def _read(self) -> int:
    """Returns the examples before this run; 0 if the checkpoint does not know."""
    checkpoint = self._restored
    if checkpoint is None and self._options.checkpoint_dir:  # the ps kept the run's state
      checkpoint = latest_checkpoint(self._options.checkpoint_dir)
    try:
      if checkpoint is None or not tf.gfile.Exists(checkpoint + SUFFIX):
        return 0
      with tf.gfile.GFile(checkpoint + SUFFIX) as file:
        kept = json.loads(file.read())
      return int(kept["before"]) + (0 if kept["run"] == self._run.run_id else int(kept["examples"]))
    except (tf.errors.OpError, ValueError, KeyError, TypeError) as error:
      _log.warning("the number of examples so far cannot be read, so it begins at 0: %s", error)
      return 0

  def texts_beside_checkpoint(self) -> Dict[str, str]:
    run, own = self._run, self._run.cluster.task.name
    others = sum(member.examples for member in run.members()
                 if member.run == run.run_id and member.role == "worker" and member.name != own)
    kept = {"run": run.run_id, "before": self.before, "examples": others + self._counter.examples}
    return {SUFFIX: json.dumps(kept)}
