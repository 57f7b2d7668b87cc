"""Packs the messages that a finished graph sends between its tasks, without the program's help.

A legacy program reads each variable, and sends each gradient, in a separate message. In the
finished graph, `pack_graph` finds the effects: updates of variables, and gradients for an
accumulator. It sends the following tensors together:

- variables whose values are needed by the same groups of effects (fetch.py);
- small dense tensors that a worker computes for the effects of one group on a ps: its gradients.

A group is a set of effects of which each operation needs all or none. The training op of an
optimizer needs all. So a run that needs one effect of a group needs all of them. A run without an
effect, such as the run of a summary or of an evaluation's own copy of the model, sends the same
messages as before.
Tensors of a group travel together only if

- none of them waits for an effect of the group: `_Uses._level` counts the effects on the way to a
  tensor, and a tensor that waits for the effect of another tensor has a higher level;
- they need the same placeholders, readers, iterators and queues. So no run needs a feed, or takes
  an element, that it did not need or take before.

Operations in a branch or a loop keep their own messages.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.graph import (
  VARIABLE_OPS,
  depths,
  in_order,
  predecessors_in_order,
  source_op,
  task_of_op,
)
from tf1ps.transfer import fetch, local_copies
from tf1ps.transfer.wire_options import DEFAULT_PACK_BYTES

_EFFECTS = re.compile("(Resource)?(Sparse)?(Accumulator)?Apply|Assign|(Resource)?Scatter|"
                      "(Padding|Priority)?(FIFO)?Queue(Many)?Enqueue|QueueEnqueue")
_RESHAPES = frozenset(["Identity", "Reshape"])


class Packed(NamedTuple):
  """The numbers of tensors that travel together in a graph, and of their messages."""

  variables: int  # the variables whose values travel together
  pulls: int  # the messages of these values
  gradients: int  # the gradients and other inputs of the effects that travel together
  pushes: int  # the messages of these gradients


def pack_graph(pack_bytes: int = DEFAULT_PACK_BYTES, worker: str = "") -> Packed:
  """Packs the messages of the default graph. Call it before a session runs the graph.

  Args:
    pack_bytes: tensors of this size or more travel alone; 0: all tensors travel alone.
    worker: the task of the session, on which operations without a device run.

  Raises:
    ValueError: pack_bytes is not a number of bytes.
  """
  uses = _Uses(tf.get_default_graph())
  pushed = [
    arrival for (source, target, *_), moved in uses.pushes(worker).items()
    for arrival in fetch.send_together(source, target, moved, pack_bytes)]
  pulled = [arrival for arrival in fetch.fetch_variables(
    pack_bytes, worker=worker, uses=lambda op: uses.groups_below.get(op, 0))
    if len(arrival.reads) > 1]
  local_copies.keep_constants_local()
  return Packed(sum(len(bucket.reads) for bucket in pulled), len(pulled),
                sum(len(bucket.reads) for bucket in pushed), len(pushed))


class _Uses:
  """The effects of a graph, and the groups of effects that need each operation.

  Sets of effects, of groups and of sources are the bits of an int.

  Attributes:
    groups_below: by operation, the groups of effects that need the operation.
  """

  def __init__(self, graph: tf.Graph):
    self._ops = in_order(graph.get_operations())
    ignored = fetch.initializing_ops() | {
      variable.initializer for variable in tf.global_variables() + tf.local_variables()}
    effects = [op for op in self._ops if _is_effect(op) and op not in ignored]
    self._number = {op: number for number, op in enumerate(effects)}
    self._depths = depths(self._ops)
    self._level: Dict[tf.Operation, int] = {}  # effects on the longest way to an operation
    self._sources: Dict[tf.Operation, int] = {}  # placeholders, stateful operations that it needs
    self._group = _find_groups(len(effects), self._look_up())
    self.groups_below = self._look_down()

  def _look_up(self) -> List[int]:
    """Walks from the beginning of the graph; returns the sets of effects that operations need.

    If an operation needs an effect, the set leaves out the effects that this effect waits for.
    """
    nearest: Dict[tf.Operation, int] = {}
    sets, sources = set(), 0
    for op in self._ops:
      near = level = needs = 0
      for before in predecessors_in_order(op):
        number = self._number.get(before)
        near |= nearest.get(before, 0) if number is None else 1 << number
        level = max(level, self._level.get(before, 0) + (number is not None))
        needs |= self._sources.get(before, 0)
      if _is_source(op):
        needs, sources = needs | 1 << sources, sources + 1
      nearest[op], self._level[op], self._sources[op] = near, level, needs
      if near:
        sets.add(near)
    return sorted(sets)

  def _look_down(self) -> Dict[tf.Operation, int]:
    below: Dict[tf.Operation, int] = {}
    for op in reversed(self._ops):
      groups = below.get(op, 0)
      if op in self._number:
        groups |= 1 << self._group[self._number[op]]
        below[op] = groups
      if groups:
        for before in predecessors_in_order(op):
          below[before] = below.get(before, 0) | groups
    return below

  def pushes(self, worker: str) -> Dict[tuple, List[fetch.Read]]:
    """Finds the tensors that workers compute for effects on ps, by the tensors' common route."""
    consumers: Dict[tuple, Dict[str, list]] = {}
    for effect in self._number:
      target = task_of_op(effect)
      if not target or self._depths[effect.name].branches:
        continue
      for tensor in effect.inputs:
        source = task_of_op(tensor.op) or worker
        if source.partition("/task:")[0] in ("", target.partition("/task:")[0]) \
            or not self._may_travel(tensor):
          continue
        own = consumers.setdefault((source, target), {}).setdefault(tensor.name, [tensor])
        own.append(effect)
    by_key: Dict[tuple, List[fetch.Read]] = {}
    for (source, target), tensors in consumers.items():
      for tensor, *effects in tensors.values():
        groups = 0
        for effect in effects:
          groups |= 1 << self._group[self._number[effect]]
        key = (source, target, tensor.dtype, groups, self._level[tensor.op],
               self._sources[tensor.op])
        by_key.setdefault(key, []).append(
          fetch.Read(tensor.op.name, tensor, (tensor,), tuple(effects)))
    return by_key

  def _may_travel(self, tensor) -> bool:
    return (tensor.dtype.is_floating and tensor.shape.is_fully_defined()
            and tensor.op.type not in VARIABLE_OPS and tensor.op.type != "Const"
            and not self._depths[tensor.op.name].branches)


def _find_groups(count: int, sets: List[int]) -> List[int]:
  """Returns the group of each effect: two effects share it if each of `sets` has both or neither.

  An effect in no set has a separate group.
  """
  together = 0
  for effects in sets:
    together |= effects
  groups = [together] if together else []
  for effects in sets:
    groups = [part for group in groups for part in (group & effects, group & ~effects) if part]
  group_of = list(range(len(groups), len(groups) + count))
  for number, group in enumerate(groups):
    for effect in range(count):
      if group >> effect & 1:
        group_of[effect] = number
  return group_of


def _is_effect(op) -> bool:
  if not _EFFECTS.match(op.type) or not op.inputs:
    return False
  if op.type.startswith("Assign") and len(op.inputs) > 1:  # not when it restores a checkpoint
    return not source_op(op.inputs[1], _RESHAPES).type.startswith("Restore")
  return True


def _is_source(op) -> bool:
  """Whether an operation needs a feed, or gives a different value each time."""
  if op.type.startswith("Placeholder"):
    return True
  return op.op_def.is_stateful and op.type not in VARIABLE_OPS and not op.type.startswith(
    ("ReadVariable", "VarIsInitialized", "Assign", "Resource", "Apply", "Scatter"))
