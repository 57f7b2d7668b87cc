"""Finds which operations may not run, because they are in a branch or loop of TensorFlow 1.

An operation in a branch of `tf.cond` runs only if the branch is taken. If the branch is not taken,
an operation outside that waits for it by a control edge does not run either. An edge can enter a
loop only through an `Enter` operation. So code that adds control edges has to know the branches and
loops. This module finds them from the operations alone, because an imported operation has no
control flow context.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.graph import walk

_ENTERS = frozenset(["Enter", "RefEnter"])
_EXITS = frozenset(["Exit", "RefExit"])
_SWITCHES = frozenset(["Switch", "RefSwitch", "_SwitchN"])
_MERGES = frozenset(["Merge", "RefMerge"])
_NEXT = frozenset(["NextIteration", "RefNextIteration"])
_CONTROL_FLOW = _ENTERS | _EXITS | _SWITCHES | _MERGES | _NEXT | {"LoopCond"}

# Operations that run functions. The operations of a function are not operations of the graph.
FUNCTION_CALLERS = frozenset([
  "If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase", "For",
  "PartitionedCall", "StatefulPartitionedCall"])


class Depth(NamedTuple):
  """The branches and loops around an operation."""

  branches: int  # branches and loops; an operation with more than 0 may not run
  loops: int  # loops alone


def in_order(ops: Iterable[tf.Operation]) -> List[tf.Operation]:
  """Sorts operations so that each comes after the operations that it needs.

  This order differs from the order of creation: the `Switch` of a value that a branch uses is
  created after the operation in the branch. The edges back to the beginning of a loop do not count.
  """
  left = {op.name: op for op in ops}
  sorted_ops: Dict[str, tf.Operation] = {}
  for op in list(left.values()):
    waiting = [op]
    while waiting:
      last = waiting[-1]
      if left.pop(last.name, None) is not None:
        waiting += [other for other in predecessors_in_order(last) if other.name in left]
      else:
        sorted_ops.setdefault(waiting.pop().name, last)
  return list(sorted_ops.values())


def predecessors_in_order(op: tf.Operation) -> List[tf.Operation]:
  """Returns the operations that an operation waits for, without edges back in a loop."""
  above = walk.predecessors(op)
  return [before for before in above if before.type not in _NEXT] if op.type in _MERGES else above


def depths(ops: Iterable[tf.Operation]) -> Dict[str, Depth]:
  """Returns the branches and loops around operations, by their names.

  `ops` are in the order of `in_order`. An operation that they need but that is not in `ops` counts
  as outside of all branches and loops.
  """
  depths_by_name: Dict[str, Depth] = {}
  for op in ops:
    known = [depths_by_name[before.name] for before in predecessors_in_order(op)
             if before.name in depths_by_name]
    branches = max([depth.branches for depth in known], default=0)
    loops = max([depth.loops for depth in known], default=0)
    if op.type in _ENTERS:
      branches, loops = branches + 1, loops + 1
    elif op.type in _EXITS:
      branches, loops = branches - 1, loops - 1
    elif op.type in _SWITCHES:
      branches += 0 if _begins_loop(op.inputs[0].op) else 1
    elif op.type in _MERGES:
      branches -= 0 if _begins_loop(op) else 1
    depths_by_name[op.name] = Depth(max(0, branches), max(0, loops))
  return depths_by_name


def is_control_flow(op: tf.Operation) -> bool:
  """Returns whether an operation leads into, out of or around a branch or a loop."""
  return op.type in _CONTROL_FLOW


def is_enter(op: tf.Operation) -> bool:
  """Returns whether an operation leads into a loop."""
  return op.type in _ENTERS


def _begins_loop(op):
  return op.type in _MERGES and any(
    tensor.op.type in _ENTERS or tensor.op.type in _NEXT for tensor in op.inputs)
