"""Operations that are built once and added many times.

Building an operation takes Python 0.1 to 0.3 ms; importing an operation takes a tenth of that. So
if many tensors of one form need the same operations, these operations are built once, in a separate
graph, and imported for each tensor.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence, Tuple

import tensorflow.compat.v1 as tf

_CPU = "/device:CPU:0"


class Template:
  """Operations in a separate graph, which can be added to any graph."""

  def __init__(self, build: Callable[[], Tuple[Sequence[tf.Tensor], Any]]):
    """Builds the operations.

    Args:
      build: returns two things for `add`: the tensors that represent inputs from the other graph,
        and a structure of tensors and operations. Each input must be the only output of its
        operation, and no other operation may wait for that operation without taking its value.
    """
    with tf.Graph().as_default() as graph:
      inputs, results = build()
      whole = graph.as_graph_def()
    self._inputs = [tensor.name for tensor in inputs]
    self._results = tf.nest.map_structure(lambda result: result.name, results)
    given = {tensor.op.name for tensor in inputs}
    self._definition = tf.GraphDef(versions=whole.versions, library=whole.library)
    for node in whole.node:
      if node.name not in given:
        node.device = ""
        node.attr.pop("_class", None)  # it may name an operation of `given`
        self._definition.node.add().CopyFrom(node)

  def add(self, inputs: Sequence[tf.Tensor], device: str,
          attributes: Dict[str, Dict[str, tf.AttrValue]], name: str):
    """Adds the operations to the graph of the inputs; returns the structure of `build` there.

    The operations wait for the caller's control dependencies, and ignore the caller's devices.

    Args:
      inputs: the tensors that replace the input tensors of `build`.
      device: the device of all operations; "" is the CPU of the client's task.
      attributes: {name of an operation: {attribute: value}}, which replace the attributes that the
        operation was built with.
      name: the scope of the new operations' names.
    """
    definition = tf.GraphDef()
    definition.CopyFrom(self._definition)
    for node in definition.node:
      for key, value in attributes.get(node.name, {}).items():
        node.attr[key].CopyFrom(value)
    with inputs[0].graph.as_default(), tf.device(None), tf.device(device or _CPU):
      added = tf.import_graph_def(
        definition, dict(zip(self._inputs, inputs)), tf.nest.flatten(self._results), name)
    return tf.nest.pack_sequence_as(self._results, added)


def constant_attributes(value, dtype: tf.DType) -> Dict[str, tf.AttrValue]:
  """The attributes of a constant."""
  return {"value": tf.AttrValue(tensor=tf.make_tensor_proto(value, dtype))}


def text_attribute(text: str) -> tf.AttrValue:
  """An attribute that is a text."""
  return tf.AttrValue(s=tf.compat.as_bytes(text))
