"""Where an iterator stands, as bytes: taken between two steps, put back into a new session.

The bytes hold what the pipeline holds, as the elements in the buffer of a shuffle. TensorFlow
writes such a state to a file and nowhere else, so it goes through a temporary directory of this
process: the iterator must be on a device of it.

A position fits a pipeline that is made of the same operations, functions and constants, as file
names (`digest`). Pipelines that call Python have none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.pipeline import iterators, python_calls

_PARTS = ("position.index", "position.data-00000-of-00001")


class PositionError(Error, RuntimeError):
  """The position of an iterator cannot be saved, or does not fit."""


class IteratorPositions:
  """The positions of the iterators of a graph that our sessions initialise.

  Attributes:
    digest: a text that is the same for the same pipelines.
    are_there: whether there are iterators, none of which calls Python.
    calls_python: whether one of them does.
  """

  def __init__(self, graph: tf.Graph):
    """Adds to the graph what saves and restores its iterators.

    Args:
      graph: the default graph; its pipelines are made.
    """
    self._starts = iterators.iterator_initializers(graph)
    description = _description(graph, self._starts)
    self.digest = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:16]
    self.calls_python = any(op in python_calls.CALLS for op, _ in description)
    self.are_there = bool(self._starts) and not self.calls_python
    if not self.are_there:
      return
    self._prefix = tf.placeholder(tf.string, [], "position_file")
    names = [op.inputs[1].op.name for op in self._starts]
    slices = [""] * len(names)
    # Without a device, which would be the worker's default one: where the iterators are.
    with tf.device(self._starts[0].device):
      states = [_serialize(op.inputs[1]) for op in self._starts]
      self._save = tf.raw_ops.SaveV2(
        prefix=self._prefix, tensor_names=names, shape_and_slices=slices, tensors=states)
      read = tf.raw_ops.RestoreV2(prefix=self._prefix, tensor_names=names, shape_and_slices=slices,
                                  dtypes=[tf.variant] * len(names))
      self._restore = tf.group(*[
        tf.raw_ops.DeserializeIterator(resource_handle=op.inputs[1], serialized=state)
        for op, state in zip(self._starts, read)])

  def save(self, session: tf.Session) -> bytes:
    """Takes the positions; nobody may draw a batch meanwhile.

    Raises:
      PositionError: the pipeline cannot be saved.
    """
    with tempfile.TemporaryDirectory(prefix="tf1ps-") as folder:
      prefix = os.path.join(folder, "position")
      try:
        session.run(self._save, {self._prefix: prefix})
      except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError,
              tf.errors.InvalidArgumentError) as error:
        raise PositionError(error.message) from error
      parts = []
      for name in _PARTS:
        with open(os.path.join(folder, name), "rb") as file:
          parts.append(file.read())
    return b"%d\n" % len(parts[0]) + parts[0] + parts[1]

  def restore(self, session: tf.Session, position: bytes) -> None:
    """Puts the iterators where they were; they must be initialised.

    Raises:
      PositionError: it cannot be restored; the iterators begin anew.
    """
    size, _, both = position.partition(b"\n")
    with tempfile.TemporaryDirectory(prefix="tf1ps-") as folder:
      for name, part in zip(_PARTS, (both[:int(size)], both[int(size):])):
        with open(os.path.join(folder, name), "wb") as file:
          file.write(part)
      try:
        session.run(self._restore, {self._prefix: os.path.join(folder, "position")})
      except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError,
              tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.DataLossError,
              tf.errors.OutOfRangeError, tf.errors.InternalError) as error:
        session.run(self._starts)
        raise PositionError(error.message) from error


def _serialize(handle):
  try:
    # As make_saveable_from_iterator has it: a state outside of the pipeline is an error.
    return tf.raw_ops.SerializeIterator(resource_handle=handle, external_state_policy=2)
  except TypeError:  # 1.15 has no such choice
    return tf.raw_ops.SerializeIterator(resource_handle=handle)


def _description(graph: tf.Graph, starts: List[tf.Operation]) -> list:
  """Type and constant of each operation of pipelines, also in their functions, in order."""
  definition = graph.as_graph_def()
  functions = {each.signature.name: each for each in definition.library.function}
  names = {op.name for op in iterators.behind(starts)}
  nodes = [node for node in definition.node if node.name in names]
  found, seen = [], set()
  while nodes:
    node = nodes.pop(0)
    found.append((node.op, _constant(node)))
    for key in sorted(node.attr):
      called = node.attr[key].func.name
      if called in functions and called not in seen:
        seen.add(called)
        nodes += functions[called].node_def
  return found


def _constant(node) -> str:
  if node.op != "Const":
    return ""
  return hashlib.sha256(node.attr["value"].tensor.SerializeToString(deterministic=True)).hexdigest()
