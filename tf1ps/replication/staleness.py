"""Measures the age of gradients, uses it, and counts it.

An asynchronous worker computes its gradient on variables that other workers continue to change. The
age of a gradient is the number of updates, by any worker, between the reading of the variables and
the update with this gradient: 0 for a single worker, about n - 1 for n workers of equal speed. The
ps that holds the global step measures the age:

1. `begin_gradient_age` reads the global step at the beginning of the step, when the step reads the
   variables. (A run of several steps may read large variables up to one transfer before.)
2. `age_at_push` reads the global step again when the gradients have arrived. `damped_learning_rate`
   divides the learning rate by that age. `apply_unless_older` makes the update only if the age is
   low enough. Both need the age before the update, which costs a round trip to the ps.
3. If neither is used, `gradient_age` reads the global step after the update. This age also counts
   updates of other workers between the update of the last variable and the read.
4. `AgeTable` counts the age on the ps, because fetching the age costs a message, which slows down a
   step of a small model. `read_ages` turns tables into `Ages`.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication.gradients import Gradient
from tf1ps.transfer import apply_and_count

AGE_TABLE_SIZE = 4096  # counts of the ages from 0; the last count includes all higher ages
_REF = ("VariableV2", "Variable")  # types of operations


# Measuring.

def begin_gradient_age(global_step: tf.Variable) -> tf.Tensor:
  """Builds the read of the global step at a step's beginning: `begun` below, an int64 scalar."""
  with tf.get_default_graph().colocate_with(global_step.op), tf.control_dependencies(None):
    # A sum, because the read value of a ref variable may change with the variable.
    return tf.add(tf.cast(global_step.read_value(), tf.int64), 1, name="staleness_begun")


def gradient_age(global_step: tf.Variable, begun: tf.Tensor, train_op: tf.Operation) -> tf.Tensor:
  """Builds the age of a step's gradient at the end of its update, in global steps.

  Args:
    global_step: the variable that counts updates.
    begun: the value of `begin_gradient_age`.
    train_op: the update, which raises the global step by 1.

  Returns:
    An int64 scalar on the ps of the global step.
  """
  with tf.get_default_graph().colocate_with(global_step.op), tf.control_dependencies([train_op]):
    done = tf.cast(global_step.read_value(), tf.int64)
    return tf.maximum(done - begun, 0, name="staleness")


def age_at_push(global_step: tf.Variable, begun: tf.Tensor, gradients: List[Gradient]) -> tf.Tensor:
  """Builds the age of a gradient at its push, in global steps.

  Args:
    global_step: the variable that counts updates.
    begun: the value of `begin_gradient_age`.
    gradients: the gradients of all variables; None entries are ignored.

  Returns:
    An int64 scalar: 0 if no worker has made an update since `begun`.
  """
  parts = [part for gradient in gradients if gradient is not None for part in (
    (gradient.values, gradient.indices) if isinstance(gradient, tf.IndexedSlices) else (gradient,))]
  with tf.get_default_graph().colocate_with(global_step.op), tf.control_dependencies(parts):
    # A sum, as above.
    now = tf.add(tf.cast(global_step.read_value(), tf.int64), 1)
    return tf.maximum(now - begun, 0, name="age_at_push")


# The effects of the age.

def damped_learning_rate(learning_rate: Union[float, tf.Tensor], age: tf.Tensor) -> tf.Tensor:
  """Returns the learning rate for a gradient of this age: divided by the age, if it is above 1.

  The function damps the learning rate and not the gradient, because optimizers such as Adam
  normalise the scale of a gradient. The method is from Zhang, Gupta, Lian and Liu,
  "Staleness-aware Async-SGD for Distributed Deep Learning", 2015. That paper divides by the
  expected age, the number of workers. This function divides by the age of each gradient.

  Args:
    learning_rate: the rate of a fresh gradient.
    age: the age at the push, an integer scalar.

  Returns:
    A float32 scalar, for an optimizer of TensorFlow.
  """
  with tf.get_default_graph().colocate_with(age.op):
    return tf.cast(learning_rate, tf.float32) / tf.maximum(tf.cast(age, tf.float32), 1.0)


class Applied(NamedTuple):
  """An update that is made only for young gradients."""

  train_op: tf.Operation  # the update, or nothing
  taken: tf.Tensor  # bool scalar: whether the update was made


def apply_unless_older(
  optimizer: tf.train.Optimizer, grads_and_vars: List[Tuple[Gradient, tf.Variable]],
  global_step: tf.Variable, age: tf.Tensor, max_staleness: int
) -> Applied:
  """Builds an update that is made only if the gradients are young enough.

  Args:
    optimizer: makes the update.
    grads_and_vars: pairs (gradient, variable); pairs without a gradient are ignored.
    global_step: an update raises it by 1; a dropped gradient does not change it.
    age: the age at the push, an int64 scalar.
    max_staleness: the highest age of a gradient that is applied.

  Raises:
    ValueError: a `max_staleness` below 0, or ref variables together with TensorFlow 2's control
      flow, which cannot update them in a branch.
  """
  if max_staleness < 0:
    raise ValueError("max_staleness must be at least 0, got %r" % (max_staleness,))
  pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]

  if tf.control_flow_v2_enabled() and any(v.op.type in _REF for _, v in pairs):
    raise ValueError(
      "dropping a stale update of ref variables needs the control flow of TensorFlow 1: "
      "call tf.disable_control_flow_v2() first, or make resource variables (use_resource=True)")

  scope = tf.get_default_graph().get_name_scope()

  def apply():
    # Outside the branch's name scope, the optimizer's variables get their usual names, so that
    # checkpoints match.
    with tf.name_scope(scope + "/" if scope else None):
      update = apply_and_count(optimizer, pairs, global_step)
    with tf.control_dependencies([update]):
      return tf.constant(True)

  taken = tf.cond(age <= max_staleness, apply, lambda: tf.constant(False))
  return Applied(tf.group(taken, name="apply_unless_older"), taken)


# Counting.

class Ages:
  """The ages of gradients.

  Attributes:
    counts: the number of gradients of each age.
  """

  def __init__(self, counts: Optional[Dict[int, int]] = None):
    """Begins with these counts by age, or without ages."""
    self.counts = collections.Counter(counts or {})

  def add(self, age: int) -> None:
    """Adds a gradient's age."""
    self.counts[int(age)] += 1

  @property
  def gradients(self) -> int:
    """The number of gradients."""
    return sum(self.counts.values())

  @property
  def total(self) -> int:
    """The sum of the ages."""
    return sum(age * count for age, count in self.counts.items())

  @property
  def mean(self) -> float:
    """The mean age; 0 without gradients."""
    return self.total / max(1, self.gradients)

  @property
  def highest(self) -> int:
    """The highest age; 0 without gradients."""
    return max(self.counts, default=0)

  def histogram(self) -> tf.HistogramProto:
    """A histogram for TensorBoard: a bucket per age."""
    ages = sorted(self.counts)
    return tf.HistogramProto(
      min=ages[0] if ages else 0, max=self.highest, num=self.gradients, sum=self.total,
      sum_squares=sum(age * age * self.counts[age] for age in ages),
      bucket_limit=[age + 0.5 for age in ages], bucket=[self.counts[age] for age in ages])

  def __str__(self):
    return "staleness %.1f (%d at most)" % (self.mean, self.highest)


class AgeTable:
  """The counts of a replica's ages, a small vector beside the global step, in no checkpoint.

  A process that begins to train runs `reset`, counts the age of each gradient after its update, and
  reads the table now and then. Each replica writes only its own table, so no step needs a lock. A
  restarted ps has no table.

  Attributes:
    reset: the operation that sets the table to zero.
    is_initialized: a bool scalar tensor: whether the table exists.
    read: the table, an int64 tensor of shape [AGE_TABLE_SIZE], for `read_ages`.
  """

  def __init__(self, global_step: tf.Variable, index: int):
    """Builds the table in the default graph.

    Args:
      global_step: the variable that counts updates; the table lives beside it.
      index: the index of the replica.

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
    """Builds the operation that counts an age.

    Fetch it together with the training step: in a `tf.group` on another task it would cost a
    message.

    Args:
      age: an int64 scalar beside the global step, as `gradient_age` returns it.
      max_staleness: a gradient of a higher age is dropped, and does not count.
    """
    with self._beside():
      added = tf.constant(1, tf.int64)
      if max_staleness is not None:
        added = tf.cast(age <= max_staleness, tf.int64)
      # Few operations, because each operation slows down a step of a small model.
      return tf.raw_ops.ResourceScatterAdd(
        resource=self._handle, indices=tf.minimum(age, AGE_TABLE_SIZE - 1), updates=added)

  @contextlib.contextmanager
  def _beside(self):
    """Returns a scope for operations beside the global step that wait only for their inputs."""
    with tf.control_dependencies(None), tf.name_scope("ages"), \
        tf.get_default_graph().colocate_with(self._global_step.op):
      yield


def read_ages(tables: Iterable[np.ndarray]) -> Ages:
  """Returns the ages in tables.

  Args:
    tables: the tables of the replicas, of shape [AGE_TABLE_SIZE]; the last entry also counts all
      higher ages.
  """
  counts = np.sum(list(tables), axis=0)
  return Ages({int(age): int(counts[age]) for age in np.flatnonzero(counts)})
