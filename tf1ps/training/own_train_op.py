"""A program's own training op (`ModelSpec(train_op=...)`) in the place of an optimizer's update.

The training op makes the whole update: with two optimizers, for example, or with some of the
gradients changed. Only asynchronous between-graph replication runs such an update as it is. All
else takes the gradients of the loss apart from the update, and refuses the program.

The step that is built here raises the global step by exactly 1. A training op either raises it
itself, once, or leaves that to the step.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.graph import needed_ops
from tf1ps.program import ModelSpecError
from tf1ps.training import options as options_lib

# Options that act on the gradients, or on the update that is made of them.
_NEED_GRADIENTS = ("replication", "sync_replicas", "num_clones", "gradient_accumulation_steps",
                   "clip_norm", "l2_regularization", "learning_rate_decay", "moving_average_decay",
                   "prefetch", "wire_dtype")
_READS = ("Identity", "IsVariableInitialized", "ReadVariableOp", "VarIsInitializedOp")
_RAISES = ("AssignAdd", "AssignAddVariableOp")


def check(options: options_lib.Options) -> None:
  """Raises ModelSpecError if a job with these options cannot run a program's own training op."""
  needs = [name for name in _NEED_GRADIENTS
           if getattr(options, name) != options_lib.BY_NAME[name].default]
  if options.staleness.drop is not None or options.staleness.damp:
    needs.append("staleness_policy")
  if needs:
    flag = options_lib.as_flag(needs[0], getattr(options, needs[0]))
    raise ModelSpecError(
      f"model_fn returned a train_op, and {flag} makes the update itself, from the gradients of "
      f"the loss. Return ModelSpec(optimizer=...) in its place, or leave out {flag}")


def build_update(train_op, update_ops: List[tf.Operation],
                 global_step: tf.Variable) -> tf.Operation:
  """Builds a step of a training op; it raises the global step by exactly 1.

  Args:
    train_op: the program's, an operation or a tensor.
    update_ops: run in the same step, such as the updates of moving averages.
    global_step: the variable that counts updates.

  Raises:
    ModelSpecError: the training op raises the global step more than once or otherwise than by 1.
  """
  train_op = getattr(train_op, "op", train_op)
  needed = set(needed_ops([train_op]))
  # The handle of a resource variable, or the reference to another one.
  changes = [op for op in global_step.op.outputs[0].consumers()
             if op in needed and op.type not in _READS]
  for op in changes:
    if op.type not in _RAISES or tf.get_static_value(op.inputs[1]) != 1:
      raise ModelSpecError(
        f"the train_op uses the global step in {op.name} ({op.type}), which may not raise it by 1 "
        "in each step. Leave the global step out of the train_op: tf1ps raises it")
  if len(changes) > 1:
    raise ModelSpecError(
      f"the train_op raises the global step {len(changes)} times in a step "
      f"({', '.join(op.name for op in changes)}). Give global_step to one optimizer, or to none: "
      "tf1ps then raises it")
  done = tf.group(train_op, *update_ops, name="train") if update_ops else train_op
  if changes:
    return done
  with tf.control_dependencies([done]), tf.colocate_with(global_step.op):
    return tf.assign_add(global_step, 1, use_locking=True).op


class NoGradients:
  """Stands for the optimizer of a program with its own training op: computes no gradient."""

  def compute_gradients(self, *unused_args, **unused_kwargs) -> list:
    """Returns no pair."""
    return []
