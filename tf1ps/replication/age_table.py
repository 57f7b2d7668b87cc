"""The ages of one worker's gradients, counted on the ps that keeps the global step.

A tensor that is fetched from another task travels in a message of its own, and a step on a small
model notices that. So the ages stay where they are measured, in a small vector beside the global
step that no checkpoint has:

1. A process that begins to train sets its table to zero (`reset`).
2. After each update the age is counted there (`count`): an operation to run as a target, which
   brings nothing back.
3. Now and then, and at the end, the table is read (`read`), and `ages_of` makes `staleness.Ages`
   of it.

Each replica writes only its own table, so that no step needs a lock. A ps that was started again
has no table (`is_initialized`).
"""

from __future__ import annotations

import contextlib
from typing import Iterable, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication import staleness

AGE_TABLE_SIZE = 4096  # counts of the ages from 0; the last one has all above, too


class AgeTable:
  """A table of ages, as the graph of its replica sees it.

  Attributes:
    reset: the operation that sets it to zero.
    is_initialized: a bool scalar tensor: whether it was set to zero since the ps was started.
    read: the table, an int64 tensor of shape [SIZE], for `ages_of`.
  """

  def __init__(self, global_step: tf.Variable, index: int):
    """Builds it in the default graph.

    Args:
      global_step: the variable that counts updates; the table lives beside it.
      index: of the replica.

    Raises:
      ValueError: an index below 0.
    """
    if index < 0:
      raise ValueError("index must be at least 0, got %r" % (index,))
    self._global_step = global_step
    container = global_step.op.get_attr("container").decode("utf-8")
    with self._beside(), tf.get_default_graph().container(container):
      self._handle = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[AGE_TABLE_SIZE],
        shared_name="tf1ps.ages:%s:%d" % (global_step.op.name, index))
      self.reset = tf.raw_ops.AssignVariableOp(
        resource=self._handle, value=tf.zeros([AGE_TABLE_SIZE], tf.int64))
      self.is_initialized = tf.raw_ops.VarIsInitializedOp(resource=self._handle)
      self.read = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)

  def count(self, age: tf.Tensor, max_staleness: Optional[int] = None) -> tf.Operation:
    """Builds the counting of an age.

    Args:
      age: an int64 scalar beside the global step, as `staleness.gradient_age` returns it.
      max_staleness: an age above it belongs to a gradient that is dropped, and does not count.

    Returns:
      The operation. Run it together with the training step, as it is: inside of a group that
      belongs to another task it would send a message.
    """
    with self._beside():
      one = tf.constant(1, tf.int64)
      if max_staleness is not None:
        one = tf.cast(age <= max_staleness, tf.int64)
      # As few operations as can be: a step on a small model notices each.
      return tf.raw_ops.ResourceScatterAdd(
        resource=self._handle, indices=tf.minimum(age, AGE_TABLE_SIZE - 1), updates=one)

  @contextlib.contextmanager
  def _beside(self):
    """A scope for operations beside the global step that wait for nothing but their inputs."""
    with tf.control_dependencies(None), tf.name_scope("ages"), \
        tf.get_default_graph().colocate_with(self._global_step.op):
      yield


def read_ages(tables: Iterable[np.ndarray]) -> staleness.Ages:
  """The ages in tables that were read.

  Args:
    tables: of one replica or of several, each of shape [SIZE].

  Returns:
    All of them together. An age of SIZE - 1 stands for all above, too.
  """
  counts = np.sum(list(tables), axis=0)
  return staleness.Ages({int(age): int(counts[age]) for age in np.flatnonzero(counts)})
