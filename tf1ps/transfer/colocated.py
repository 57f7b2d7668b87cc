"""What is computed beside a variable, of values that the worker has anyway, is computed there.

A regularizer that `tf.get_variable` is given stands beside its variable: on the ps. Its loss is a
number a variable that travels to the worker, and its gradient may need another one: two messages
for each variable, where the values themselves are on the worker already (pulls.py). So small
results that are computed of nothing but such values and constants are computed on the worker too.
"""

from __future__ import annotations

from typing import Dict, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import replace_input
from tf1ps.transfer import frames, placed


def bring(values: Dict[str, Optional[tf.Tensor]], task: str) -> int:
  """Copies such computations of the default graph to a task.

  Args:
    values: what has arrived there, by the name of the read that it stands for; None for what must
      stay where it is.
    task: such as "/job:worker/task:0".

  Returns:
    How many results do not travel any more.
  """
  count, made = 0, {}
  sources = {placed.place_of(tf.get_default_graph().get_tensor_by_name(name).op)
             for name in values}
  for op in tf.get_default_graph().get_operations():
    if op.type == "Const" or placed.place_of(op) not in sources:
      continue
    for index, tensor in enumerate(op.outputs):
      consumers = [one for one in tensor.consumers() if placed.place_of(one) == task]
      if consumers and tensor.name not in values and placed.is_small(tensor):
        copy = _copy(op, values, task, made)
        if copy is not None:
          replace_input(tensor, copy.outputs[index], consumers)
          count += 1
  return count


def _copy(op: tf.Operation, values: Dict[str, Optional[tf.Tensor]], task: str,
          made: Dict[str, Optional[tf.Operation]]) -> Optional[tf.Operation]:
  """The operation on the task, and all that it is computed of; None where it must stay."""
  if op.name not in made:
    made[op.name] = None
    if not (op.op_def.is_stateful or op.control_inputs or frames.is_edge(op)):
      inputs = [_input(tensor, values, task, made) for tensor in op.inputs]
      if not any(one is None for one in inputs) and (inputs or op.type == "Const"):
        attrs = {name: value for name, value in op.node_def.attr.items() if name != "_class"}
        with tf.control_dependencies(None), tf.device(placed.cpu_of(task)):
          made[op.name] = op.graph.create_op(
            op.type, inputs, [tensor.dtype for tensor in op.outputs], attrs=attrs,
            name=op.name + "/of" + placed.suffix_of(task))
  return made[op.name]


def _input(tensor, values, task, made):
  if tensor.name in values:
    return values[tensor.name]
  if not placed.is_small(tensor):
    return None
  copy = _copy(tensor.op, values, task, made)
  return None if copy is None else copy.outputs[tensor.value_index]
