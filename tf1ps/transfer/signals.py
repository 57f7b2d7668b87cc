"""The signals of a run: messages without a value, where a task waits for operations of another one.

Counted as TensorFlow's graph optimizer leaves them, in this order:

1. A NoOp that only passes on what it waited for is left out where that saves dependencies, and as
   few cross from task to task as before.
2. What an operation waits for on one other task comes as one signal.
3. Whoever waits alone for the same operation on one task shares its signal.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence

import tensorflow.compat.v1 as tf


class Signal(NamedTuple):
  """A message from one task to another that something is done."""

  name: str  # of the operation that is done, or of the one that waits for several
  source: str  # the task that sends it
  destination: str  # the task that waits


def signals(ops: Sequence[tf.Operation], fetches: Sequence, tasks: Dict[tf.Operation, str]
            ) -> List[Signal]:
  """Finds the signals of a run.

  Args:
    ops: all operations that are run, each after those that it needs.
    fetches: the tensors and operations that are fetched, which are never left out.
    tasks: the task of each operation.

  Returns:
    A list, in the order of those that wait.
  """
  waits = {op: dict.fromkeys(op.control_inputs) for op in ops}  # sets that keep their order
  followers: Dict[tf.Operation, dict] = {op: {} for op in ops}
  for op in ops:
    for other in op.control_inputs:
      followers[other][op] = None
  for op in ops:
    if op.type == "NoOp" and op not in fetches and _should_go(
        tasks[op], [tasks[one] for one in waits[op]], [tasks[one] for one in followers[op]]):
      for other in waits[op]:
        del followers[other][op]
        followers[other].update(followers[op])
      for follower in followers[op]:
        del waits[follower][op]
        waits[follower].update(waits[op])
      waits[op] = {}
  found = {}
  for op in ops:
    by_task: Dict[str, list] = {}
    for other in waits[op]:
      by_task.setdefault(tasks[other], []).append(other)
    for task, others in by_task.items():
      if task != tasks[op]:
        name = others[0].name if len(others) == 1 else op.name
        found[name, task, tasks[op]] = Signal(name, task, tasks[op])
  return list(found.values())


def _should_go(here: str, before: List[str], after: List[str]) -> bool:
  """Whether a NoOp of one task is left out: by the rules of TensorFlow's dependency optimizer.

  Args:
    here: the task of the NoOp.
    before: the task of each operation that it waits for.
    after: the task of each one that waits for it.

  Returns:
    Whether it goes.
  """
  if not before or not after or len(before) * len(after) > len(before) + len(after):
    return False
  if len(before) == 1 and len(after) > 1 and before[0] != here:
    return False
  if len(before) > 1 and len(after) == 1 and after[0] != here:
    return False
  with_it = sum(task != here for task in before + after)
  return sum(one != other for one in before for other in after) <= with_it
