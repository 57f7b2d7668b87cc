"""Copies of a training step behind one another: which operation of a copy waits for what.

For what is waited, and where, unrolling.py tells. Found from the operations of the step:

- `touching`: those with a handle as an input: reads, gathers and updates of variables, tables,
  queues. Where a handle enters a branch or a loop, what leads it in.
- `drawing`: those of the worker with a state, which an order is seen of: what draws the batch, and
  variables, calls of Python, random numbers there.
- `last`: on each task, those that nothing of the step on this task waits for. One within a branch,
  which may not run, stands for what follows on it outside.
- `arriving`: on each other task, a value that travels to the worker and does not depend on what
  is drawn. Where there is none, the no-op of that task sends word.
"""

from __future__ import annotations

import collections
from typing import Callable, Dict, List, Set, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.transfer import frames, graph_copies, placed


class Chain:
  """A step, and what its copies have to wait for."""

  def __init__(self, step: dict, worker: str, note: Callable[[List[dict]], tf.Operation]):
    """Looks at the step.

    Args:
      step: tensors and operations by name, all that is to be run; None among them.
      worker: the device of the worker.
      note: called with the steps before a copy; builds on the worker what notes that they are done.
    """
    self._step, self._note = step, note
    self._place, self._worker = worker, placed.task_of_device(worker)
    self._part = graph_copies.Part(step)
    self._ops = {op.name: op for op in frames.in_order(self._part.ops)}
    self._tasks = _tasks_of(self._ops.values())
    self._depths = frames.depths(self._ops.values())
    self._consumers = self._find_consumers()
    self._gated = self._find_gated()
    self._last = self._find_last()
    self._arriving = self._find_arriving()
    # Made before the rest of a copy, which waits for it.
    self._first = self._rest = None
    if self._arriving:
      self._first = graph_copies.Part(list(self._arriving.values()))
      self._rest = graph_copies.Part(step, without=self._first.ops)

  def build(self, steps: int) -> List[dict]:
    """Builds the copies in the default graph; returns each step's tensors, the original's first."""
    built, before = [self._step], None
    for number in range(1, steps):
      before = self._copy(number, before, built)
      built.append(before.of(self._step))
    return built

  @property
  def ops(self) -> List[tf.Operation]:
    """The operations of the step that a copy would have."""
    return self._part.ops

  def drawn(self) -> Tuple[List[tf.Operation], Set[str]]:
    """What draws a batch; and the names of these and of all operations that depend on them."""
    drawing = self._gated.get(self._worker, [])
    return drawing, self._below(drawing)

  def _copy(self, number, before, built) -> graph_copies.Copy:
    """A copy that waits for the one before it; None is the step itself."""
    def of(op):
      return op if before is None else before.ops[op.name]

    gates = {}
    for task in self._gated:
      if task != self._worker:
        with tf.device(task), tf.control_dependencies([of(op) for op in self._last[task]]):
          gates[task] = tf.constant(0, name="before_%d" % number)
    name = "step_%d" % number
    waits = {op.name: [gates[task]] for task in gates for op in self._gated[task]}
    first = None
    if self._first is not None:
      first = self._first.copy(name, number, waits=waits)
    with tf.device(self._place):
      words = [tf.identity(gates[task] if first is None or task not in self._arriving
                           else first.of(self._arriving[task]), name="arrived")
               for task in sorted(gates)]
      with tf.control_dependencies(words + [of(op) for op in self._last[self._worker]]):
        noted = self._note(built)
        with tf.control_dependencies([noted]):
          begun = tf.constant(0, name="begun_%d" % number)
    waits.update({op.name: [begun] for op in self._gated.get(self._worker, ())})
    return (self._rest or self._part).copy(name, number, replace=first, waits=waits)

  def _find_consumers(self) -> Dict[str, List[tf.Operation]]:
    found = collections.defaultdict(list)
    for op in self._part.ops:
      for one in frames.before(op):
        if one.name in self._ops:
          found[one.name].append(op)
    return found

  def _find_gated(self) -> Dict[str, List[tf.Operation]]:
    """By task, the operations of a copy that wait for the one before it."""
    found = collections.defaultdict(list)
    loops_have_state = any(
      self._depths[op.name].loops and op.op_def.is_stateful and self._is_of_worker(op)
      for op in self._part.ops)
    for op in self._part.ops:
      is_touching = any(graph_copies.is_handle(tensor.op) for tensor in op.inputs)
      is_drawing = self._is_of_worker(op) and (
        op.op_def.is_stateful or loops_have_state and frames.is_enter(op))
      # An edge leads into a loop but through its Enter, which counts as of the loop itself.
      loops = self._depths[op.name].loops - (1 if frames.is_enter(op) else 0)
      if (is_touching or is_drawing) and loops == 0:
        found[self._tasks[op.name]].append(op)
    return dict(found)

  def _is_of_worker(self, op):
    return self._tasks[op.name] == self._worker

  def _find_last(self) -> Dict[str, List[tf.Operation]]:
    """By task, what a step is over with there."""
    found = collections.defaultdict(dict)
    for op in self._part.ops:
      task = self._tasks[op.name]
      if self._depths[op.name].branches:
        for other in self._behind_branch(op):
          found[task][other.name] = other
      elif not any(self._tasks[one.name] == task and not self._depths[one.name].branches
                   for one in self._consumers[op.name]):
        found[task][op.name] = op
    return collections.defaultdict(
      list, {task: list(ops.values()) for task, ops in found.items()})

  def _behind_branch(self, op) -> List[tf.Operation]:
    """What follows on an operation within a branch, outside of it; only where it is the last."""
    task = self._tasks[op.name]
    if any(self._tasks[one.name] == task for one in self._consumers[op.name]):
      return []
    found, seen, waiting = [], set(), [op]
    while waiting:
      for one in self._consumers[waiting.pop().name]:
        if one.name in seen:
          continue
        seen.add(one.name)
        if self._depths[one.name].branches:
          waiting.append(one)
        else:
          found.append(one)
    return found

  def _find_arriving(self) -> Dict[str, tf.Tensor]:
    """By task, a value that travels to the worker, and waits for nothing that is drawn."""
    late = self._below(self._gated.get(self._worker, ()))
    below = collections.defaultdict(set, {
      task: self._below(ops) for task, ops in self._gated.items()})
    found = {}
    for op in self._part.ops:
      if op.name in late or self._is_of_worker(op) or self._depths[op.name].branches:
        continue
      task = self._tasks[op.name]
      if task in found or op.name not in below[task]:
        continue
      for one in self._consumers[op.name]:
        if self._is_of_worker(one):
          tensor = next((t for t in one.inputs if t.op.name == op.name), None)
          if tensor is not None:
            found[task] = tensor
            break
    return found

  def _below(self, ops):
    """The names of these operations and of all that need them."""
    seen, waiting = {op.name for op in ops}, list(ops)
    while waiting:
      for one in self._consumers[waiting.pop().name]:
        if one.name not in seen:
          seen.add(one.name)
          waiting.append(one)
    return seen


def _tasks_of(ops) -> Dict[str, str]:
  """The task of each operation by its name: what uses a handle runs where that is."""
  found = {}
  for op in ops:
    handles = [tensor.op for tensor in op.inputs if graph_copies.is_handle_type(tensor)]
    found[op.name] = placed.task_of_device(op.device)
    if handles:  # whatever its own device says, as that of a read of a variable
      found[op.name] = found.get(handles[0].name, placed.task_of_device(handles[0].device))
  return found
