"""Which operations of a graph may not run: those within a branch or a loop of TensorFlow 1.

An operation within the branch of a `tf.cond` runs only where the branch is taken, and whoever waits
for it by a control edge does not run either where it is not; and no edge leads into a loop but
through its `Enter`. So whoever adds control edges has to know. Told from the operations alone, as
an operation that was imported knows of no branch or loop that it is in.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple

import tensorflow.compat.v1 as tf

_ENTERS = frozenset(["Enter", "RefEnter"])
_EXITS = frozenset(["Exit", "RefExit"])
_SWITCHES = frozenset(["Switch", "RefSwitch", "_SwitchN"])
_MERGES = frozenset(["Merge", "RefMerge"])
_NEXT = frozenset(["NextIteration", "RefNextIteration"])


class Depth(NamedTuple):
  """Where an operation stands."""

  branches: int  # branches and loops that it is in: above 0, it may not run
  loops: int  # loops that it is in


def in_order(ops: Iterable[tf.Operation]) -> List[tf.Operation]:
  """Operations behind those that they need; an edge back within a loop is passed over.

  They were not always built in this order: what leads a value into a branch is built after the
  operation there that needs it.
  """
  left = {op.name: op for op in ops}
  found: Dict[str, tf.Operation] = {}
  for op in list(left.values()):
    waiting = [op]
    while waiting:
      one = waiting[-1]
      if left.pop(one.name, None) is not None:
        waiting += [other for other in before(one) if other.name in left]
      else:
        found.setdefault(waiting.pop().name, one)
  return list(found.values())


def before(op: tf.Operation) -> List[tf.Operation]:
  """What an operation waits for, but for an edge back within a loop."""
  above = [tensor.op for tensor in op.inputs] + list(op.control_inputs)
  return [one for one in above if one.type not in _NEXT] if op.type in _MERGES else above


def depths(ops: Iterable[tf.Operation]) -> Dict[str, Depth]:
  """Finds what branches and loops operations are in.

  Args:
    ops: with all that they need but what is in none, in the order of `in_order`.

  Returns:
    The depth by the name of each operation.
  """
  found: Dict[str, Depth] = {}
  for op in ops:
    known = [found[one.name] for one in before(op) if one.name in found]
    branches = max([one.branches for one in known], default=0)
    loops = max([one.loops for one in known], default=0)
    if op.type in _ENTERS:
      branches, loops = branches + 1, loops + 1
    elif op.type in _EXITS:
      branches, loops = branches - 1, loops - 1
    elif op.type in _SWITCHES:
      branches += 0 if _is_of_loop(op.inputs[0].op) else 1
    elif op.type in _MERGES:
      branches -= 0 if _is_of_loop(op) else 1
    found[op.name] = Depth(max(0, branches), max(0, loops))
  return found


def is_edge(op: tf.Operation) -> bool:
  """Whether an operation leads into, out of or round a branch or a loop."""
  return op.type in _ENTERS | _EXITS | _SWITCHES | _MERGES | _NEXT


def is_enter(op: tf.Operation) -> bool:
  """Whether an operation leads into a loop."""
  return op.type in _ENTERS


def _is_of_loop(op):
  """Whether this is the merge at the begin of a loop."""
  return op.type in _MERGES and any(
    tensor.op.type in _ENTERS or tensor.op.type in _NEXT for tensor in op.inputs)
