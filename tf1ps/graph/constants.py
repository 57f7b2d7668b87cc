"""Finds the large constants of a graph, such as the arrays of `Dataset.from_tensor_slices`.

Each copy of the graph's definition contains them: in event files, in graph.pbtxt, in each meta
graph, and in the messages to the servers. A definition cannot be larger than 2 GB.
"""

from __future__ import annotations

from typing import Dict

import tensorflow.compat.v1 as tf

LARGE = 1 << 24  # bytes from which a constant is large
LARGEST_GRAPH = 2 ** 31 - 1  # bytes of a graph's definition


def constant_bytes(graph: tf.Graph) -> Dict[str, int]:
  """Returns the bytes of each constant of a graph by its name; for strings, with their lengths."""
  sizes = {}
  for op in graph.get_operations():
    if op.type != "Const":
      continue
    value = op.outputs[0]
    size = (value.shape.num_elements() or 0) * value.dtype.size
    if value.dtype == tf.string or size >= LARGE:  # equal elements may be stored once
      size = op.node_def.ByteSize()
    sizes[op.name] = size
  return sizes


def large_constants(graph: tf.Graph) -> Dict[str, int]:
  """Returns the bytes of each constant that is large, by its name."""
  return {name: size for name, size in constant_bytes(graph).items() if size >= LARGE}


def definition_without(graph: tf.Graph, constants: Dict[str, int]) -> tf.GraphDef:
  """Returns the graph's definition with shapes, and without the values of these constants."""
  definition = graph.as_graph_def(add_shapes=True)
  for node in definition.node:
    if node.name in constants:
      value = node.attr["value"].tensor
      empty = tf.GraphDef().node.add().attr["value"].tensor
      empty.dtype = value.dtype
      empty.tensor_shape.CopyFrom(value.tensor_shape)
      value.CopyFrom(empty)
  return definition
