"""Parameter prefetch: step n computes with values that were fetched during step n-1.

The values that arrive from the ps go into a staging area on the worker. The model takes them from
the staging area one step later, so that the transfer of the next values overlaps with the
computation of this step. In this order:

1. When a session begins, `PrefetchHook` discards the values of an earlier session and fetches the
   first values. In a loop without hooks, `start` does this.
2. Each step takes the staged values and fetches the next values (the train op of `with_put`).

Each gradient is one update older than without prefetch. Code that measures the age of gradients
also stages the global step at which their values were fetched (`hold`). The staged graph can only
train: evaluate in a separate graph.
"""

from __future__ import annotations

import uuid
from typing import Iterable, List

import tensorflow.compat.v1 as tf

_NAME = "tf1ps_prefetch_"  # the beginning of the names of all staging areas


def is_in(operations: Iterable[tf.Operation]) -> bool:
  """Returns whether some of the operations fetch values for a later step."""
  return any(op.type in ("Stage", "Unstage") and
             op.get_attr("shared_name").decode("utf-8").startswith(_NAME) for op in operations)


class Prefetch:
  """The staging areas of a worker's step."""

  def __init__(self):
    """Creates the object without staging areas."""
    self._name = _NAME + uuid.uuid4().hex
    self._puts: List[tf.Operation] = []
    self._clears: List[tf.Operation] = []

  def hold(self, tensors: List[tf.Tensor]) -> List[tf.Tensor]:
    """Stages tensors of known shapes on the device of the first tensor.

    Returns the tensors that the step before has staged, in the same number, types and shapes.
    """
    device = tensors[0].op.device
    names = dict(container="", shared_name="%s_%d" % (self._name, len(self._puts)))
    dtypes = [tensor.dtype.base_dtype for tensor in tensors]
    with tf.control_dependencies(None), tf.device(device), tf.name_scope("prefetch"):
      self._puts.append(tf.raw_ops.Stage(values=tensors, **names))
      self._clears.append(tf.raw_ops.StageClear(dtypes=dtypes, **names))
      held = tf.raw_ops.Unstage(dtypes=dtypes, **names)
    for before, now in zip(tensors, held):
      now.set_shape(before.shape)
    return list(held)

  def with_put(self, train_op: tf.Operation) -> tf.Operation:
    """Returns the training step together with the fetch of the next values."""
    return tf.group(train_op, *self._puts, name="train_and_prefetch")

  def start(self, session: tf.Session) -> None:
    """Fetches the first values. Call it once per session, before the first step."""
    session.run(self._clears)
    session.run(self._puts)

  def make_session_run_hook(self) -> "PrefetchHook":
    """Returns the hook that calls `start`."""
    return PrefetchHook(self)


class PrefetchHook(tf.train.SessionRunHook):
  """Fetches the first values of each session."""

  def __init__(self, prefetch: Prefetch):
    self._prefetch = prefetch

  def after_create_session(self, session, coord):
    self._prefetch.start(session)
