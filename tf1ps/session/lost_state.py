"""Restores the variables of a lost ps, and leaves the newer values of the other ps (`lost_only`).

1. The session names the variables without a value, which are the variables of the lost ps. They
   include slots, because a slot is on the task of its variable, and shards of divided variables.
2. Of the saver's operations, only the operations that assign these variables run. A saver that
   restores anything else, such as a table, cannot be divided: then everything is restored.
3. Variables that the saver leaves out get their initial values.

Afterwards the values of the job have different ages: the values on this ps are as old as the
checkpoint. Each variable is whole, and asynchronous workers read values of different ages at all
times. Synchronous updates do not allow values of different ages.
"""

from __future__ import annotations

import logging
from typing import Dict, List, Optional, Sequence

import tensorflow.compat.v1 as tf

_log = logging.getLogger("tf1ps")
_ASSIGNS = ("Assign", "AssignVariableOp")
_HANDLES = ("VarHandleOp", "VariableV2", "Variable")


def restore_lost(session: tf.Session, saver: tf.train.Saver, checkpoint: str,
                 names: Sequence[str]) -> bool:
  """Restores some variables from a checkpoint.

  Args:
    session: the session.
    saver: the saver whose operations restore.
    checkpoint: the checkpoint's path without the endings of its files.
    names: the names of the variables without a value.

  Returns:
    Whether the variables were restored. False if the saver restores anything other than variables;
    then nothing has changed.

  Raises:
    tf.errors.OpError: a variable could not be restored.
  """
  assigns = find_assigns(session.graph, saver)
  if assigns is None:
    return False
  restores = [assigns[name] for name in names if name in assigns]
  if restores:
    session.run(restores, {saver.saver_def.filename_tensor_name: checkpoint})
  others = [variable.initializer for variable in session.graph.get_collection(
    tf.GraphKeys.GLOBAL_VARIABLES) if variable.op.name in names and variable.op.name not in assigns]
  session.run(others)
  return True


def find_assigns(graph: tf.Graph, saver: tf.train.Saver) -> Optional[Dict[str, tf.Operation]]:
  """Returns the saver's assignments by variable name, or None if it restores anything else."""
  if not saver.saver_def:
    return {}  # it restores nothing
  assigns: Dict[str, tf.Operation] = {}
  left: List[tf.Operation] = [graph.get_operation_by_name(saver.saver_def.restore_op_name)]
  seen = set()
  while left:
    op = left.pop()
    if op in seen:
      continue
    seen.add(op)
    if op.type == "NoOp":
      left.extend(op.control_inputs)
    elif op.type in _ASSIGNS and op.inputs[0].op.type in _HANDLES:
      assigns[op.inputs[0].op.name] = op
    else:
      _log.info("the saver restores %s (%s), which is not a variable", op.name, op.type)
      return None
  return assigns
