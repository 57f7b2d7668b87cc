"""What becomes of stale gradients: they are dropped, or their learning rate is lowered.

The age of a gradient as of its push is the number of updates that others made between the reading
of the variables and the moment at which the gradient was computed (staleness.py measures it after
the update instead, which is later). In this order:

1. `staleness.begin_gradient_age` reads the global step as the step begins.
2. `age_at_push` reads it again, on the ps that keeps it, when the gradients are there.
3. `damped` divides the learning rate by that age, and `apply_unless_older` makes the update only
   where the age is low enough. Both need the age before the update: a way to the ps and back.
"""

from __future__ import annotations

from typing import List, NamedTuple, Tuple, Union

import tensorflow.compat.v1 as tf

_REF = ("VariableV2", "Variable")  # types of operations
Gradient = Union[tf.Tensor, tf.IndexedSlices]


class Applied(NamedTuple):
  """An update that may have been left out."""

  train_op: tf.Operation  # the update, or nothing
  taken: tf.Tensor  # bool scalar: whether it was made


def age_at_push(global_step: tf.Variable, begun: tf.Tensor,
                gradients: List[Gradient]) -> tf.Tensor:
  """Builds the age of a gradient as of its push.

  Args:
    global_step: the variable that counts updates.
    begun: what `staleness.begin_gradient_age` returned.
    gradients: those of all variables; None among them are passed over.

  Returns:
    The age in global steps, an int64 scalar: 0 where nobody has made an update meanwhile.
  """
  parts = [part for gradient in gradients if gradient is not None for part in (
    (gradient.values, gradient.indices) if isinstance(gradient, tf.IndexedSlices) else (gradient,))]
  with tf.get_default_graph().colocate_with(global_step.op), tf.control_dependencies(parts):
    # A sum, because what a ref variable's read returns may change with the variable.
    now = tf.add(tf.cast(global_step.read_value(), tf.int64), 1)
    return tf.maximum(now - begun, 0, name="age_at_push")


def damped_learning_rate(learning_rate: Union[float, tf.Tensor], age: tf.Tensor) -> tf.Tensor:
  """The learning rate for a gradient of this age: divided by the age, where that is above 1.

  It is the learning rate that is lowered and not the gradient, which optimizers such as Adam scale
  back. From Zhang, Gupta, Lian and Liu, "Staleness-aware Async-SGD for Distributed Deep Learning",
  2015 (there with the number of workers as the expected age, here with each gradient's own).

  Args:
    learning_rate: of a fresh gradient.
    age: as of the push, an integer scalar.

  Returns:
    A float32 scalar, for an optimizer of TensorFlow's.
  """
  with tf.get_default_graph().colocate_with(age.op):
    return tf.cast(learning_rate, tf.float32) / tf.maximum(tf.cast(age, tf.float32), 1.0)


def apply_unless_older(
  optimizer: tf.train.Optimizer, grads_and_vars: List[Tuple[Gradient, tf.Variable]],
  global_step: tf.Variable, age: tf.Tensor, max_staleness: int
) -> Applied:
  """Builds an update that is made only where the gradients are young enough.

  Args:
    optimizer: makes the update.
    grads_and_vars: pairs of a gradient and its variable; those without a gradient are passed over.
    global_step: is raised by an update; a dropped gradient leaves it as it is.
    age: as of the push, an int64 scalar.
    max_staleness: the highest age of a gradient that is applied.

  Returns:
    The update, and whether it was made.

  Raises:
    ValueError: a `max_staleness` below 0, or ref variables together with TensorFlow 2's control
      flow, which cannot update them in a branch.
  """
  if max_staleness < 0:
    raise ValueError("max_staleness must be at least 0, got %r" % (max_staleness,))
  pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]

  if tf.control_flow_v2_enabled() and any(v.op.type in _REF for _, v in pairs):
    raise ValueError(
      "an update of ref variables that may be left out needs the control flow of TensorFlow 1: "
      "call tf.disable_control_flow_v2() first, or make resource variables (use_resource=True)")

  scope = tf.get_default_graph().get_name_scope()

  def apply():
    # Not within the scope of the branch: what the optimizer makes has the names that it has
    # without one, so that checkpoints go from one to the other.
    with tf.name_scope(scope + "/" if scope else None):
      update = optimizer.apply_gradients(pairs, global_step=global_step)
    with tf.control_dependencies([update]):
      return tf.constant(True)

  taken = tf.cond(age <= max_staleness, apply, lambda: tf.constant(False))
  return Applied(tf.group(taken, name="apply_unless_older"), taken)
