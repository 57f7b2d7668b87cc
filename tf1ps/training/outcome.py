"""The result of a worker's training, or its error."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.program import Evaluation
from tf1ps.state import Member


class Outcome(NamedTuple):
  """The result of a worker's training."""

  steps: int  # the steps of this worker
  global_step: int  # the last global step that this worker saw
  examples: int  # the examples that this worker trained on
  seconds: float  # from the first session to the end of the loop
  reason: str  # why training ended
  late: int  # examples whose gradients came too late for a synchronous update
  staleness: str  # the ages of its gradients, and the effect of the policies; or ""
  evaluation: Optional[Evaluation]  # only the chief evaluates
  members: List[Member]  # of the job, at the end; only the chief reads them
  skipped: int = 0  # bad records of this worker
  # Under --shard=dynamic: examples of all workers in ranges that were returned and leased again.
  again: Optional[int] = None
  rolled_back: int = 0  # on the chief: the known number of global steps that were lost with ps
  traffic: str = ""  # the traffic of the chief's steps, how their time divides, and their bound
  warning: str = ""  # on the chief: why the job has not reached its goal
  checkpoint: Optional[str] = None  # the evaluated checkpoint; None without --checkpoint_dir

  @property
  def metrics(self) -> Dict[str, float]:
    """The metrics of the evaluation at the end; {} without an evaluation."""
    return {} if self.evaluation is None else self.evaluation.metrics


class NanLossError(Error, tf.train.NanLossDuringTrainingError):
  """The loss became NaN."""

  def __init__(self, step: int, own_step: int):
    super().__init__()
    self._text = ("the loss is NaN at global step %d (step %d of this worker): lower "
                  "--learning_rate, or look at the data" % (step, own_step))

  def __str__(self):
    return self._text
