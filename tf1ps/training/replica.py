"""A replica: what a training loop runs, whichever replication built it."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.replication import AgeTable, RoundResult
from tf1ps.training import remainder as remainder_lib
from tf1ps.transfer import AccumulatedRemainder


class Replica(NamedTuple):
  """The parts of a client's graph that the training loop runs."""

  train_op: tf.Operation  # one update of the variables
  loss: tf.Tensor  # [], of the batch; the mean over the batches of a synchronous update
  batch_examples: tf.Tensor  # the size of the batch, a scalar int; whoever runs it draws a batch
  counted: Optional[tf.Operation] = None  # counts the age of an asynchronous update's gradient
  age_tables: List[AgeTable] = []  # where this and the hooks' replicas count them
  taken: Optional[tf.Tensor] = None  # bool: whether an asynchronous update was made; None: always
  round_result: Optional[RoundResult] = None  # of a synchronous update
  # Of data that end, where the end of another worker's ends training.
  remainder: Optional[remainder_lib.Remainder] = None
  # Where a step is of several batches: what pushes a part of them at the end of the data.
  rest: Optional[AccumulatedRemainder] = None
  hooks: List[tf.train.SessionRunHook] = []  # that its steps need


def summarize_loss(loss: tf.Tensor) -> None:
  """Adds a summary of the loss, named "loss".

  Under this very name: tf.summary.scalar's would be "loss_1" beside an operation "loss".
  """
  tf.add_to_collection(
    tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(tags="loss", values=loss))
