"""Clears the state of an earlier run on a ps, and leaves the queues there.

The program of a ps may wait for an element of a queue instead of calling `Server.join`. If the
container were cleared, the queue would disappear: the program would wait for ever, or TensorFlow 2
would end the process. So for each operation of a graph that keeps state on such a ps:

1. A variable or a table is destroyed. TensorFlow cannot destroy a ref variable; the variable gets
   zeros, in the shape that this graph gives it.
2. A queue stays and loses its elements. A dequeue that waits continues to wait.
"""

from __future__ import annotations

import time
from typing import List, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  BoundedSession,
  LimitExceeded,
  ServerRecord,
  call_within,
  make_small_config,
)
from tf1ps.compat import TIMING, error_line
from tf1ps.state import containers, guard

_DESTROYED = ("VarHandleOp", "HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2",
              "MutableDenseHashTableV2")
_REF_VARIABLES = ("VariableV2", "Variable")
_EMPTIED = ("FIFOQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2", "RandomShuffleQueueV2")


class _QueueToEmpty(NamedTuple):
  size: tf.Tensor
  take: list  # the components of one dequeued element
  least: int  # the number of elements that cannot be dequeued (min_after_dequeue)


class _Clearing(NamedTuple):
  graph: tf.Graph
  clear: List[tf.Operation]
  queues: List[_QueueToEmpty]


def clear_run_state(record: ServerRecord, graph: tf.Graph, tasks: Sequence,
                    timeout: float = 10.0) -> None:
  """Clears the state of a graph on tasks: variables, tables, and the elements of queues.

  Args:
    record: the record of this task's server; only state in its container is cleared.
    graph: the graph; nothing is added to it.
    tasks: the `Task`s.
    timeout: seconds for each task.

  Raises:
    ContainerError: a task did not answer; the error names it, and the tasks before it are cleared.
  """
  for task in tasks:
    clearing = _build(graph, record.container, task)
    config = make_small_config({record.cluster.task.name, task.name})
    session = BoundedSession(
      record.target, clearing.graph, config, close_limit=TIMING.run_session_close_limit)
    try:
      call_within(timeout, "clearing the state on %s" % task.name,
                  _clear, session, clearing, timeout)
    except (tf.errors.OpError, LimitExceeded) as error:
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
      raise containers.ContainerError(
        "the state of an earlier run on %s at %s was not cleared: %s" % (
          task.name, task.address, error_line(error))) from error
    finally:
      session.close()


def _build(graph, container, task) -> _Clearing:
  clearing = _Clearing(tf.Graph(), [], [])
  for op in graph.get_operations():
    if op.type in _DESTROYED + _REF_VARIABLES + _EMPTIED and _is_in(op, container, task):
      with clearing.graph.as_default(), tf.device(op.device):
        _add(clearing, op)
  return clearing


def _is_in(op, container, task) -> bool:
  if op.get_attr("container").decode("utf-8") != container:
    return False
  if op.type not in _REF_VARIABLES and (
      op.get_attr("shared_name").decode("utf-8") == guard.REGISTER):
    return False  # tf1ps's own queues use it: a program that waits for one would see a reset
  device = tf.DeviceSpec.from_string(op.device or "")
  return (device.job, device.task or 0) == (task.job, task.index)


def _add(clearing, op):
  handle = _copy(op, clearing.graph)
  if op.type in _EMPTIED:
    types = list(op.get_attr("component_types"))
    if op.type == "PriorityQueueV2":
      types.insert(0, tf.int64)  # the priority
    clearing.queues.append(_QueueToEmpty(
      tf.raw_ops.QueueSizeV2(handle=handle),
      list(tf.raw_ops.QueueDequeueV2(handle=handle, component_types=types)),
      op.get_attr("min_after_dequeue") if op.type == "RandomShuffleQueueV2" else 0))
  elif op.type in _DESTROYED:
    clearing.clear.append(tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True))
  elif handle.shape.is_fully_defined():
    zeros = tf.zeros(handle.shape, handle.dtype.base_dtype)
    clearing.clear.append(tf.assign(handle, zeros, validate_shape=False).op)


def _copy(op, graph) -> tf.Tensor:
  """Copies an operation and the operations that it depends on; returns its output."""
  definition, seen = tf.GraphDef(), set()

  def add(op):
    if op.name in seen:
      return
    seen.add(op.name)
    node = definition.node.add()
    node.CopyFrom(op.node_def)
    node.ClearField("input")
    node.attr.pop("_class", None)
    for tensor in op.inputs:
      node.input.append(tensor.name)
      add(tensor.op)

  add(op)
  if not definition.node[0].attr["shared_name"].s:  # then the operation's name is the shared name
    definition.node[0].attr["shared_name"].s = op.name.encode("utf-8")
  return tf.import_graph_def(definition, return_elements=[op.name + ":0"], name="copy")[0]


def _clear(session, clearing, timeout):
  until = time.monotonic() + timeout
  session.run(clearing.clear)
  for queue in clearing.queues:
    for _ in range(max(0, int(session.run(queue.size)) - queue.least)):
      left = until - time.monotonic()
      if left <= 0:
        return
      options = tf.RunOptions(timeout_in_ms=int(1000 * min(1.0, left)) or 1)
      try:
        session.run(queue.take, options=options)  # another client may take the last element first
      except (tf.errors.DeadlineExceededError, tf.errors.OutOfRangeError):
        break
