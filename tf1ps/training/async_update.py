"""An asynchronous update: applies one worker's gradients immediately, if they are not too old.

Every update measures the age of its gradients on the ps (replication/staleness.py). With a
staleness policy, it measures the age before the update; without a policy, after the update.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.replication import age_at_push, apply_unless_older, begin_gradient_age, gradient_age
from tf1ps.transfer import apply_and_count


class Update(NamedTuple):
  """An asynchronous update."""

  train_op: tf.Operation
  age: tf.Tensor  # the age of the gradients: with a policy, at their push; else after the update
  taken: Optional[tf.Tensor]  # whether the gradients were applied; None: always


def build_update(
  grads_and_vars: list, global_step: tf.Variable, optimizer: tf.train.Optimizer,
  make_damped: Optional[Callable[[tf.Tensor], tf.train.Optimizer]] = None,
  max_staleness: Optional[int] = None, begun: Optional[tf.Tensor] = None
) -> Update:
  """Builds an asynchronous update.

  Args:
    grads_and_vars: pairs (gradient, variable); no gradient is None.
    global_step: the variable that counts updates.
    optimizer: makes the update.
    make_damped: takes the gradients' age and returns the optimizer that replaces `optimizer`; or
      None.
    max_staleness: the highest age of a gradient that is applied, or None.
    begun: the result of `staleness.begin_gradient_age`; None: this function calls it.
  """
  if begun is None:
    begun = begin_gradient_age(global_step)
  if make_damped is None and max_staleness is None:
    train_op = apply_and_count(optimizer, grads_and_vars, global_step)
    return Update(train_op, gradient_age(global_step, begun, train_op), None)
  age = age_at_push(global_step, begun, [g for g, _ in grads_and_vars])
  if make_damped is not None:
    optimizer = make_damped(age)
  if max_staleness is None:
    train_op = apply_and_count(optimizer, grads_and_vars, global_step)
    return Update(train_op, age, None)
  applied = apply_unless_older(optimizer, grads_and_vars, global_step, age, max_staleness)
  return Update(applied.train_op, age, applied.taken)
