"""Parameter prefetch: step n computes on values that were fetched during step n-1.

What arrives from the ps goes into a staging area on the worker, from which the model takes its
values a step later, so that the way of the next values hides behind the computing of this step. In
order:

1. When a session begins, what an earlier one left is thrown away, and the first values are fetched
   (`PrefetchHook`, or `start` in a loop without hooks).
2. Each step takes the values that are there, and fetches the next ones (`train_op` of `with_put`).

A gradient is one update older than without it. Whoever measures its age stages what it began with
too (`hold`). The staged graph is for training alone: evaluation has a graph of its own.
"""

from __future__ import annotations

import uuid
from typing import Iterable, List

import tensorflow.compat.v1 as tf

_NAME = "tf1ps_prefetch_"  # what the names of all staging areas begin with


def is_in(operations: Iterable[tf.Operation]) -> bool:
  """Whether some of these fetch values for a later step."""
  return any(op.type in ("Stage", "Unstage") and
             op.get_attr("shared_name").decode("utf-8").startswith(_NAME) for op in operations)


class Prefetch:
  """The staging areas of one worker's step."""

  def __init__(self):
    """Creates it; nothing is staged yet."""
    self._name = _NAME + uuid.uuid4().hex
    self._puts: List[tf.Operation] = []
    self._clears: List[tf.Operation] = []

  def hold(self, tensors: List[tf.Tensor]) -> List[tf.Tensor]:
    """Stages tensors where the first of them is; returns those of a step before.

    Args:
      tensors: of known shapes; what `pulls.fetch_variables` passes to its `hold`.

    Returns:
      As many tensors, of the same types and shapes.
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
    """The training step together with the fetching of the next values."""
    return tf.group(train_op, *self._puts, name="train_and_prefetch")

  def start(self, session: tf.Session) -> None:
    """Fetches the first values of a session; to be called once in each, before its first step."""
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
