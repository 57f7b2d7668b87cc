"""A program's own training op (`ModelSpec(train_op=...)`) in the place of an optimizer's update.

The training op makes the whole update: with two optimizers, for example, or with some of the
gradients changed. Only asynchronous between-graph replication runs such an update as it is. All
other schemes need the gradients apart from the update, and refuse the program (`NEEDS` in
optimizers.py).

The step that is built here raises the global step by exactly 1. A training op either raises it
itself, once, or leaves that to the step.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.graph import needed_ops
from tf1ps.program import ModelSpecError

_READS = ("Identity", "IsVariableInitialized", "ReadVariableOp", "VarIsInitializedOp")
_RAISES = ("AssignAdd", "AssignAddVariableOp")


def build_update(train_op, update_ops: List[tf.Operation],
                 global_step: tf.Variable) -> tf.Operation:
  """Builds a step of a training op; it raises the global step by exactly 1.

  Args:
    train_op: the program's training op, an operation or a tensor.
    update_ops: run in the same step, such as the updates of moving averages.
    global_step: the variable that counts updates.

  Raises:
    ModelSpecError: the training op raises the global step more than once or otherwise than by 1.
  """
  train_op = getattr(train_op, "op", train_op)
  needed = set(needed_ops([train_op]))
  # The output is the handle of a resource variable, or the reference to a ref variable.
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
