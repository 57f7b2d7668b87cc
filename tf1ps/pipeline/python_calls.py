"""Whether a graph calls Python: `tf.py_func`, `tf.numpy_function`, `Dataset.from_generator`.

Such operations only run in the process that has built them, whatever device they name. One is not
counted: that which tells of bad records, as it names that process's device (bad_batches.py).
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

CALLS = frozenset(["PyFunc", "PyFuncStateless", "EagerPyFunc"])
REPORT = "tf1ps_bad_records"  # in the name of the one that is not counted


def has_python_calls(graph: tf.Graph) -> bool:
  """Whether one of a graph's operations, also in the functions that it calls, is in Python."""
  definition = graph.as_graph_def()
  nodes = list(definition.node)
  for function in definition.library.function:
    nodes += function.node_def
  return any(node.op in CALLS and REPORT not in node.name for node in nodes)
