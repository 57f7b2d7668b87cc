"""Copies small computations and constants to the tasks that use them.

This avoids two kinds of messages:

- A regularizer of `tf.get_variable` is on the ps, beside its variable. Its loss is one number per
  variable that travels to the worker, and its gradient may need another number. But the values of
  the variables are on the worker already (fetch.py). `compute_on` makes the worker compute all
  small results that depend only on such values and on constants.
- A learning rate and Adam's betas are constants on the worker, and the updates on each ps need
  them. `keep_constants_local` gives each task its own constants.
"""

from __future__ import annotations

from typing import Container, Dict, List, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.graph import Subgraph, is_control_flow, needed_ops, stand_in, task_of_op

_SMALL = 64  # elements


def keep_constants_local() -> int:
  """Copies small constants of the default graph to the tasks that take them; returns their number.

  A constant may wait for operations, and in a branch or a loop it always does. The consumers of the
  constant wait for these operations only because they wait for the constant. So a copy waits for
  the same operations, if they are on the copy's task. Otherwise the copy waits for another constant
  that waits for them, which costs one message for all such copies.

  Call it before a session runs the graph.
  """
  constants: Dict[Tuple[str, bool], Dict[tf.Operation, List[tf.Operation]]] = {}
  for op in tf.get_default_graph().get_operations():
    home = task_of_op(op)
    if op.type == "Const" and home and _is_small(op.outputs[0]):
      for consumer in op.outputs[0].consumers():
        task = task_of_op(consumer)
        if task not in ("", home):
          is_near = all(task_of_op(before) == task for before in op.control_inputs)
          constants.setdefault((task, is_near), {}).setdefault(op, []).append(consumer)
  for (task, is_near), consumers in sorted(constants.items()):
    first: Dict[frozenset, tf.Operation] = {}
    waits = {}
    for op in () if is_near else consumers:
      awaited = first.setdefault(frozenset(before.name for before in op.control_inputs), op)
      waits[op.name] = [awaited.outputs[0]]
    copy = _copy_to(task, list(consumers), {}, waits, with_control_inputs=is_near)
    for op, own in consumers.items():
      stand_in(op.outputs[0], copy.of(op.outputs[0]), own)
  return sum(len(consumers) for consumers in constants.values())


def compute_on(task: str, values: Dict[str, Optional[tf.Tensor]],
               without: Container[tf.Operation] = ()) -> int:
  """Copies computations of variables' values in the default graph to a task that has the values.

  `values` has the values on the task by the names of the reads that they replace, and None for a
  tensor that must be computed where it is. Returns the number of results that no longer travel.
  """
  graph = tf.get_default_graph()
  sources = {task_of_op(graph.get_tensor_by_name(name).op) for name in values}
  can_move: Dict[tf.Operation, bool] = {}
  results = []
  for op in graph.get_operations():
    if op.type == "Const" or task_of_op(op) not in sources:
      continue
    for tensor in op.outputs:
      consumers = [consumer for consumer in tensor.consumers()
                   if task_of_op(consumer) == task and consumer not in without]
      if (consumers and tensor.name not in values and _is_small(tensor)
          and _can_move(op, values, can_move)):
        results.append((tensor, consumers))
  if results:
    needed = needed_ops([tensor.op for tensor, _ in results],
                        [graph.get_tensor_by_name(name) for name in values])
    copy = _copy_to(task, needed, values)
    for tensor, consumers in results:
      stand_in(tensor, copy.of(tensor), consumers)
  return len(results)


def _can_move(op, values, known) -> bool:
  """Whether an operation depends only on the values and on constants, and waits for nothing."""
  if op not in known:
    known[op] = False
    known[op] = (
      not (op.op_def.is_stateful or op.control_inputs or is_control_flow(op))
      and (len(op.inputs) > 0 or op.type == "Const")
      and all(values[tensor.name] is not None if tensor.name in values else
              _is_small(tensor) and _can_move(tensor.op, values, known) for tensor in op.inputs))
  return known[op]


def _copy_to(task, ops, inputs, waits=None, with_control_inputs=True):
  name = "of" + task.replace("/job:", "_").replace("/task:", "_")
  return Subgraph.of_ops(ops, with_control_inputs).copy(
    name, inputs=inputs, waits=waits, device=task)


def _is_small(tensor: tf.Tensor) -> bool:
  return tensor.shape.is_fully_defined() and tensor.shape.num_elements() <= _SMALL
