"""How a worker's training has ended: what it did, or what went wrong."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.program import Evaluation
from tf1ps.state import Member


class Outcome(NamedTuple):
  """What a worker did."""

  steps: int  # own steps
  global_step: int  # the last one seen
  examples: int  # trained on by this worker
  seconds: float  # from the first session to the end of the loop
  reason: str  # why it ended
  late: int  # examples of its batches that came too late for a synchronous update
  staleness: str  # what is told of its gradients' ages, and of what was done about them; or ""
  evaluation: Optional[Evaluation]  # the chief's
  members: List[Member]  # of the job, as of the end; only the chief looks
  skipped: int = 0  # bad records of this worker
  # Under --shard=dynamic: examples trained on in ranges that were handed out again, by all workers.
  again: Optional[int] = None
  traffic: str = ""  # what the chief's steps sent, and what their time went to


class NanLossError(Error, tf.train.NanLossDuringTrainingError):
  """The loss became NaN."""

  def __init__(self, step: int, own_step: int):
    super().__init__()
    self._text = ("the loss is NaN at global step %d (step %d of this worker): lower "
                  "--learning_rate, or look at the data" % (step, own_step))

  def __str__(self):
    return self._text
