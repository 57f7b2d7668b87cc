"""Constants stay where they are used.

A learning rate, or Adam's betas, are constants of the worker that its updates on the ps take: a
message each for every ps, in every step. `keep_at_home` has each task make its own.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.compat import replace_input
from tf1ps.transfer import placed


def keep_constants_local() -> int:
  """Copies small constants of the default graph to the tasks that take them.

  No session may have run the graph before.

  Returns:
    How many copies were made.
  """
  graph, count = tf.get_default_graph(), 0
  for op in graph.get_operations():
    if op.type != "Const" or not placed.is_small(op.outputs[0]):
      continue
    home, tensor, by_task = placed.place_of(op), op.outputs[0], {}
    for consumer in tensor.consumers():
      by_task.setdefault(placed.place_of(consumer), []).append(consumer)
    for task, consumers in sorted(by_task.items()):
      if home and task and task != home:
        with tf.control_dependencies(None), tf.device(placed.cpu_of(task)):
          copy = graph.create_op(
            "Const", [], [tensor.dtype], name=op.name + "/of" + placed.suffix_of(task),
            attrs={name: op.node_def.attr[name] for name in ("value", "dtype")})
        replace_input(tensor, copy.outputs[0], consumers)
        count += 1
  return count
