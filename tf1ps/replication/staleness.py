"""How old a gradient is when it is applied.

A worker that updates for itself computes its gradient on variables that others go on changing. The
age of a gradient is the number of updates, by anybody, that were made between the reading of the
variables and its own update: 0 for a worker alone, about n - 1 for n workers of one speed.

It is measured on the ps that keeps the global step, which it costs two reads of one number: the
first as the step begins, beside the reads of the variables, the second after the update. What other
workers do between the update of the last variable and the second read counts too. An age that is
fetched travels to the worker in a message of its own; age_table.py counts it on the ps instead.

`Ages` are what was measured.
"""

from __future__ import annotations

import collections
from typing import Dict, Optional

import tensorflow.compat.v1 as tf


def begin_gradient_age(global_step: tf.Variable) -> tf.Tensor:
  """Builds the first read, which is made as the step begins.

  Args:
    global_step: the variable that counts updates.

  Returns:
    What `age` needs, an int64 scalar.
  """
  with tf.get_default_graph().colocate_with(global_step.op), tf.control_dependencies(None):
    # A sum, because what a ref variable's read returns may change with the variable.
    return tf.add(tf.cast(global_step.read_value(), tf.int64), 1, name="staleness_begun")


def gradient_age(global_step: tf.Variable, begun: tf.Tensor, train_op: tf.Operation) -> tf.Tensor:
  """Builds the age of a training step's gradient.

  Args:
    global_step: the variable that counts updates.
    begun: what `begin` returned.
    train_op: the update, which raises the global step by one.

  Returns:
    The age in global steps, an int64 scalar on the ps of the global step.
  """
  with tf.get_default_graph().colocate_with(global_step.op), tf.control_dependencies([train_op]):
    done = tf.cast(global_step.read_value(), tf.int64)
    return tf.maximum(done - begun, 0, name="staleness")


class Ages:
  """The ages of gradients.

  Attributes:
    counts: how many gradients had each age.
  """

  def __init__(self, counts: Optional[Dict[int, int]] = None):
    """Begins with none, or with these counts by age."""
    self.counts = collections.Counter(counts or {})

  def add(self, age: int) -> None:
    """Adds a gradient's age."""
    self.counts[int(age)] += 1

  @property
  def gradients(self) -> int:
    """How many there were."""
    return sum(self.counts.values())

  @property
  def total(self) -> int:
    """The sum of their ages."""
    return sum(age * count for age, count in self.counts.items())

  @property
  def mean(self) -> float:
    """Their mean age; 0 where there was none."""
    return self.total / max(1, self.gradients)

  @property
  def highest(self) -> int:
    """The highest age; 0 where there was none."""
    return max(self.counts, default=0)

  def histogram(self) -> tf.HistogramProto:
    """What TensorBoard shows of them: a bucket for each age."""
    ages = sorted(self.counts)
    return tf.HistogramProto(
      min=ages[0] if ages else 0, max=self.highest, num=self.gradients, sum=self.total,
      sum_squares=sum(age * age * self.counts[age] for age in ages),
      bucket_limit=[age + 0.5 for age in ages], bucket=[self.counts[age] for age in ages])

  def __str__(self):
    return "staleness %.1f (%d at most)" % (self.mean, self.highest)
