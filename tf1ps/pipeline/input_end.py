"""Finds in a graph how the data of a batch end.

  Ending       the data                                          a pass has
  CONSTANT     constants and variables: each run has them again  a batch
  GENERATED    also random numbers, new in each run              no end
  ENDLESS      a dataset that repeats, or a queue whose runners  no end
               fill it again and again
  AT_AN_END    all other data, as far as the graph shows         an end
"""

from __future__ import annotations

import enum
from typing import Any, Callable, Iterable, Optional, Set

import tensorflow.compat.v1 as tf

from tf1ps.graph import needed_ops
from tf1ps.pipeline.iterators import KEEPING, has_python_calls, without_version

_ENDLESS_AS_INPUT = frozenset([
  *KEEPING, "FilterDataset", "ShuffleDataset", "CacheDataset", "SkipDataset", "ShardDataset",
  "UnbatchDataset", "IgnoreErrorsDataset", "DenseToSparseBatchDataset", "ParseExampleDataset",
  "LatencyStatsDataset", "AssertNextDataset"])
_REPEATS = {"RepeatDataset": 1, "ShuffleAndRepeatDataset": 4}  # the input that has the count
_VARIABLES = frozenset(["VarHandleOp", "ReadVariableOp", "VariableV2", "Variable"])
_RANDOM = ("Random", "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial", "Stateful",
           "Rng")
_CHECKS = frozenset(["Assert", "Print", "PrintV2", "CheckNumericsV2"])
_COUNTS = frozenset(["CountUpTo", "ResourceCountUpTo"])  # they count the epochs of a producer


class Ending(enum.Enum):
  """How the data of a batch end; see the module's table."""

  CONSTANT = "constant"
  GENERATED = "generated"
  ENDLESS = "endless"
  AT_AN_END = "at an end"


def ending_of(tensors: Any) -> Ending:
  """Returns how data end, as far as the graph shows.

  Args:
    tensors: the tensors of a batch, in any structure.
  """
  roots = [tensor.op for tensor in tf.nest.flatten(tensors) if tensor is not None]
  needed = needed_ops(roots)
  stateful = [op for op in needed if op.op_def.is_stateful and op.type not in _VARIABLES]
  if not stateful:
    return Ending.CONSTANT
  if all(map(_is_quiet, stateful)):
    return Ending.GENERATED
  if _never_ends(needed, set()) and not has_python_calls(needed[0].graph):
    return Ending.ENDLESS
  return Ending.AT_AN_END


def _is_quiet(op: tf.Operation) -> bool:
  """Whether an operation with state neither reads data from outside of the graph nor ends data."""
  kind = op.type
  return (kind in _VARIABLES or kind in _CHECKS or kind.endswith("CandidateSampler")
          or "HashTable" in kind or kind.startswith(_RANDOM) and "Queue" not in kind)


def _never_ends(needed: Iterable[tf.Operation], seen: Set[tf.Operation]) -> bool:
  """Whether operations never end the data; `seen` has the queues that were checked already."""
  return not any(_may_end(op, seen) for op in needed)


def _may_end(op: tf.Operation, seen: Set[tf.Operation]) -> bool:
  if op.type in _COUNTS:
    return True
  if not op.op_def.is_stateful or _is_quiet(op):
    return False
  kind = without_version(op.type)
  if kind in ("Iterator", "OneShotIterator"):
    return not _repeats(op)
  if kind.endswith("Queue"):
    return op not in seen and not _is_filled_again(op, seen)
  # The elements of a queue or an iterator end only when the queue or the iterator itself ends.
  return not (kind.startswith(("Queue", "Reader", "IteratorGetNext")) or kind.endswith("Reader"))


def _is_filled_again(queue: tf.Operation, seen: Set[tf.Operation]) -> bool:
  """Whether queue runners fill a queue, and their own data never end."""
  seen.add(queue)
  fills = [op for runner in queue.graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
           if runner.queue.queue_ref.op is queue for op in runner.enqueue_ops]
  return bool(fills) and _never_ends(needed_ops(fills), seen)


def _repeats(iterator: tf.Operation) -> bool:
  graph = iterator.graph
  if iterator.type == "OneShotIterator":
    name = iterator.node_def.attr["dataset_factory"].func.name
    made, = (each for each in graph.as_graph_def().library.function if each.signature.name == name)
    nodes = {node.name: node for node in made.node_def}
    return _ends_in_repeat(next(iter(made.ret.values())), nodes.get)
  makers = [op for op in iterator.outputs[0].consumers() if op.type == "MakeIterator"]
  return bool(makers) and all(
    _ends_in_repeat(op.inputs[0].name, lambda name: graph.get_operation_by_name(name).node_def)
    for op in makers)


def _ends_in_repeat(name: Optional[str], find: Callable) -> bool:
  """Whether a dataset repeats without end, or is made from such a dataset without ending it.

  Args:
    name: the name of the dataset's tensor; None: not known.
    find: returns the NodeDef of a name, or None.
  """
  while name:
    node = find(name.partition(":")[0])
    kind = "" if node is None else without_version(node.op)
    if kind in _REPEATS:
      count = find(node.input[_REPEATS[kind]].partition(":")[0])
      if count is not None and count.op == "Const" and tf.make_ndarray(
          count.attr["value"].tensor) < 0:
        return True
    name = node.input[0] if kind in _REPEATS or kind in _ENDLESS_AS_INPUT else None
  return False
