"""Refuses values that are too large for TensorFlow's messages, before a session fails on them.

A message and a graph's definition are protocol buffers, which hold less than 2 GB:

1. The constants of a graph are in its definition, which every task, event file and meta graph gets.
2. A value that an operation of another task takes is a single message. Examples are a variable that
   the model reads, its dense gradient, its initial value, a value that a saver on the chief saves,
   and a fed value. Lookups of rows run beside the variable, so a table may be larger.

TensorFlow 2 names neither the constant nor the value in its errors, which come in a step, minutes
after the start. In TensorFlow 1.15 the task that sends the value dies.
"""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.graph import constants, op_devices

# The bytes of the largest tensor that a message can hold, in addition to the message's own bytes.
LARGEST_TENSOR = 2 ** 31 - 2 ** 10
_PLACEHOLDERS = frozenset(["Placeholder", "PlaceholderV2"])
_SHOWN = 3  # the number of constants in an error
_UNKNOWN = "/job:localhost/"  # the job of operations whose device is not known
_OF_SHAPE = frozenset(["Shape", "ShapeN", "Size", "Rank"])  # their inputs do not travel


class TooLargeError(Error, ValueError):
  """A part of a graph is larger than TensorFlow's messages can be."""


def check_constants(graph: tf.Graph) -> None:
  """Raises TooLargeError if the constants of a graph are larger than its definition can be."""
  sizes = constants.constant_bytes(graph)
  total = sum(sizes.values())
  if total <= constants.LARGEST_GRAPH:
    return
  largest = sorted(sizes, key=lambda name: -sizes[name])[:_SHOWN]
  raise TooLargeError(
    "the graph has %d MB of constants, and can hold 2047 MB. The largest are %s. Read them from "
    "files, load data into a variable as examples/digits.py does, and give the initial value of a "
    "variable to tf.train.init_from_checkpoint" % (
      total >> 20, ", ".join("%s (%d MB)" % (name, sizes[name] >> 20) for name in largest)))


def check_tensors(graph: tf.Graph, task: str = "") -> None:
  """Raises TooLargeError if a value would travel that no message can hold; see `find_too_large`."""
  for reason in find_too_large(graph, task).values():
    raise TooLargeError(reason)


def find_too_large(graph: tf.Graph, task: str = "") -> Dict[tf.Operation, str]:
  """Finds the operations that take a value from another task that no message can hold.

  Args:
    graph: the graph.
    task: the session's task, where operations without a device run; "": it is not known.

  Returns:
    {operation: a text that says what is too large, and what to do}.
  """
  tasks, problems = _Tasks(task), {}
  for op in graph.get_operations():
    is_variable = op.type in op_devices.VARIABLE_OPS
    if not (is_variable or op.type in _PLACEHOLDERS) or _bytes_of(op) < LARGEST_TENSOR:
      continue
    for source, target, taker in _trips(op, tasks):
      problems.setdefault(taker, (
        "the %s %s has %d bytes, and the operation %s takes it whole from %s to %s. A message "
        "between two tasks holds less than 2147483648 bytes: %s" % (
          "variable" if is_variable else "placeholder", op.name, _bytes_of(op), taker.name, source,
          target, _OF_VARIABLE if is_variable else _OF_PLACEHOLDER)))
  return problems


_OF_VARIABLE = (
  "divide the variable, by --partition_bytes=1000000000 or a partitioner. With "
  "tf1ps.transfer.embedding_lookup a model takes only the rows that it needs")
_OF_PLACEHOLDER = (
  "feed rows, and assign them to parts of the variable, or let tf.train.init_from_checkpoint read "
  "the values on the task that has the variable")


class _Tasks:
  """The tasks of operations, as far as they are known."""

  def __init__(self, own: str):
    self.own, self._devices = own, op_devices.OpDevices(own)

  def of(self, op) -> str:
    task = op_devices.task_of_device(self._devices.of(op))
    return task if self.own or not task.startswith(_UNKNOWN) else ""

  def differ(self, task: str, other: str) -> bool:
    return task != other and "" not in (task, other)


def _trips(op, tasks: _Tasks) -> Iterator[Tuple[str, str, tf.Operation]]:
  """Yields where a large value of a variable or placeholder leaves a task: (from, to, taker)."""
  home = tasks.of(op)
  if op.type in _PLACEHOLDERS and tasks.differ(tasks.own, home):
    yield tasks.own, home, op
  waiting, seen = [op], {op}
  while waiting:
    for tensor in waiting.pop().outputs:
      for taker in tensor.consumers():
        there = tasks.of(taker)
        if taker in seen or taker.type in _OF_SHAPE:
          continue
        seen.add(taker)
        # A copy that no operation takes is never made.
        if tensor.dtype != tf.resource and taker.type != "Identity" and tasks.differ(home, there):
          yield home, there, taker
        # A value that is assigned to a variable has the variable's size.
        for given in taker.inputs if tensor.op is op else ():
          origin = tasks.of(given.op)
          if given.op is not op and _size(given) >= LARGEST_TENSOR and tasks.differ(origin, there):
            yield origin, there, taker
        if any(_size(output) >= LARGEST_TENSOR for output in taker.outputs):
          waiting.append(taker)


def _bytes_of(op) -> int:
  """The bytes of a variable or a placeholder; 0 if its shape is not known."""
  shape, dtype = op.outputs[0].shape, op.outputs[0].dtype
  if dtype == tf.resource:
    shape, dtype = tf.TensorShape(op.get_attr("shape")), tf.as_dtype(op.get_attr("dtype"))
  return _product(shape, dtype)


def _size(tensor) -> int:
  return _product(tensor.shape, tensor.dtype)


def _product(shape, dtype) -> int:
  return (shape.num_elements() or 0) * dtype.base_dtype.size
