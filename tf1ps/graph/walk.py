"""Walks along the edges of a graph: up to needed operations, and down to dependent operations.

An edge is an input or a control input. A walk up the graph starts at operations such as a training
step and can stop early, at variables for example. A walk down the graph stays among operations that
the caller gives, because an operation does not know which operations wait for it.
"""

from __future__ import annotations

from typing import Callable, Container, Dict, Iterable, Iterator, List, Optional, Set

import tensorflow.compat.v1 as tf


def predecessors(op: tf.Operation) -> List[tf.Operation]:
  """Returns the operations that an operation waits for: the sources of all its inputs."""
  return [tensor.op for tensor in op.inputs] + list(op.control_inputs)


def needed_ops(roots: Iterable[tf.Operation], fed: Iterable[tf.Tensor] = (),
               stop: Optional[Callable[[tf.Operation], bool]] = None) -> List[tf.Operation]:
  """Finds the operations that some operations need, including these operations.

  Args:
    roots: operations of one graph.
    fed: tensors that the client feeds. The walk does not go beyond them.
    stop: returns whether the walk ends at an operation, which is then not in the result.

  Returns:
    The operations in the order in which they were created.
  """
  fed = {tensor.name for tensor in fed}
  waiting = [op for op in roots if stop is None or not stop(op)]
  reached = set(waiting)
  if not waiting:
    return []
  graph = waiting[0].graph
  while waiting:
    op = waiting.pop()
    above = predecessors(op) if not fed else [
      tensor.op for tensor in op.inputs if tensor.name not in fed] + list(op.control_inputs)
    for needed in above:
      if needed not in reached and (stop is None or not stop(needed)):
        reached.add(needed)
        waiting.append(needed)
  return [op for op in graph.get_operations() if op in reached]


def consumers_of(ops: Iterable[tf.Operation],
                 above: Callable[[tf.Operation], List[tf.Operation]] = predecessors
                 ) -> Dict[tf.Operation, List[tf.Operation]]:
  """Finds the consumers of each operation among some operations.

  Args:
    ops: the operations.
    above: returns the operations that an operation waits for.

  Returns:
    For each operation its consumers among `ops`, in the order of `ops`.
  """
  consumers_by_op: Dict[tf.Operation, Dict[tf.Operation, None]] = {op: {} for op in ops}
  for op in list(consumers_by_op):
    for needed in above(op):
      if needed in consumers_by_op:
        consumers_by_op[needed][op] = None
  return {op: list(consumers) for op, consumers in consumers_by_op.items()}


def descendants(roots: Iterable[tf.Operation],
                consumers: Dict[tf.Operation, List[tf.Operation]]) -> Set[tf.Operation]:
  """Finds the operations that need some operations, including these operations.

  Args:
    roots: the operations.
    consumers: the result of `consumers_of`.
  """
  waiting = list(roots)
  reached = set(waiting)
  while waiting:
    for op in consumers.get(waiting.pop(), ()):
      if op not in reached:
        reached.add(op)
        waiting.append(op)
  return reached


def source_op(tensor: tf.Tensor, through: Container[str]) -> tf.Operation:
  """Follows first inputs up to the operation that computes a value.

  Args:
    tensor: the value.
    through: types of operations that pass a value on, such as "Identity".
  """
  while tensor.op.type in through:
    tensor = tensor.op.inputs[0]
  return tensor.op


def uses(tensors: Iterable[tf.Tensor], through: Container[str]) -> Iterator[tf.Operation]:
  """Yields the operations that take some values, directly or passed on.

  Args:
    tensors: the values.
    through: types of operations that pass a value on, such as "Identity"; they are not yielded.
  """
  for tensor in tensors:
    for consumer in tensor.consumers():
      if consumer.type in through:
        yield from uses(consumer.outputs, through)
      else:
        yield consumer
