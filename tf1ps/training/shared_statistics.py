"""The moving averages of batch normalization under synchronous updates of several workers.

Each worker has its own batch, and all workers move the same averages on the ps, once per update:

  average -= (1 - momentum) (average - statistic of the worker's batch)

With n workers the averages would move n times as far, past the statistics if n (1 - momentum) is
above 1. So each worker makes 1 / n of its move, and together they move the averages by the mean of
the statistics.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.program import is_moving_average

_MOVES = ("AssignSub", "AssignSubVariableOp")


def share_moves(update_ops: list, replicas: int) -> List[tf.Operation]:
  """Returns update operations in which each move of a moving average is one replica's part.

  Args:
    update_ops: the operations of the collection UPDATE_OPS.
    replicas: the number of replicas that make an update together.
  """
  if replicas == 1:
    return list(update_ops)
  shared = []
  for item in update_ops:
    op = getattr(item, "op", item)
    # An item is the assignment, or a read of the assigned value.
    moves = [move for move in [op, *op.control_inputs, *(tensor.op for tensor in op.inputs)]
             if move.type in _MOVES and is_moving_average(move.inputs[0].op.name)]
    shared += [_part_of(move, replicas) for move in moves] or [item]
  return shared


def _part_of(move: tf.Operation, replicas: int) -> tf.Operation:
  target, value = move.inputs
  graph = tf.get_default_graph()
  with tf.control_dependencies(move.control_inputs):
    with graph.colocate_with(value.op):
      value = value / replicas
    with graph.colocate_with(target.op):
      if move.type == "AssignSubVariableOp":
        return tf.raw_ops.AssignSubVariableOp(resource=target, value=value)
      return tf.raw_ops.AssignSub(ref=target, value=value).op
