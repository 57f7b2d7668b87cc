"""How the values of variables come from the ps to a worker.

A model that was built under a device setter reads each variable by itself: a message each. `pull`
changes that in the finished graph, whatever built it:

1. It finds the reads whose values travel: a read of the variable on its ps, and operations on
   another task that take the value.
2. For each pair of a ps and a receiving task, and each dtype, the values are put together on the ps
   as groups.py says, cast for the way (wire.py), sent, cast back and split.
3. The operations that took the value of a read take its part of what has arrived, and small results
   that were computed of it beside the variable are computed on the worker (colocated.py).
   Variables, their names, slots and checkpoints do not change, nor what is computed of the values,
   nor gradients with respect to the variables.

Left alone are reads that wait for something (a control input tells that the order matters), reads
inside of loops and branches, gathers, all that is no floating number, and what travels to a task
that keeps variables itself, such as Adam's powers from one ps to the next. Only what optimizers
alone update is cast: what the model assigns to, such as a moving average, would be rounded again
in each step. A variable of which a step took several reads travels once. No session may have run
the graph before.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.compat import replace_input
from tf1ps.transfer import colocated, groups, joined, placed, wire

_READS = frozenset(["ReadVariableOp", "Identity"])
_ASSIGNS = frozenset(["Assign", "AssignVariableOp"])


class Read(NamedTuple):
  """A variable's value on its way to a task."""

  variable: str  # the name of its operation
  value: tf.Tensor  # on the ps
  aliases: Tuple[tf.Tensor, ...]  # other reads of it, and itself
  consumers: Tuple[tf.Operation, ...]  # on the receiving task


class Arrival(NamedTuple):
  """What travels as one tensor."""

  source: str  # the task that keeps the variables
  target: str  # the task that takes their values
  tensor: tf.Tensor  # as it arrives, on the target
  reads: Tuple[Read, ...]  # whose values it is made of


def fetch_variables(pack_bytes: int = groups.DEFAULT_PACK_BYTES, wire_dtype: str = "float32",
         worker: str = "", hold: Optional[Callable[[List[tf.Tensor]], List[tf.Tensor]]] = None
         ) -> List[Arrival]:
  """Has small variables of the default graph travel together.

  Args:
    pack_bytes: variables of so many bytes or more travel alone; 0: all do.
    wire_dtype: what float32 values are sent as, one of `wire.WIRE_DTYPES`.
    worker: the task of operations without a device; "": such operations are left alone.
    hold: called with what arrives on a task; returns what is used in its place, tensor by tensor.
      With it, also what travels alone and unchanged goes through it.

  Returns:
    What arrives now otherwise than before.

  Raises:
    ValueError: arguments out of their range.
  """
  groups.check_pack_bytes(pack_bytes)
  wire.check_wire_dtype(wire_dtype)
  arrivals, plans = [], []
  for (source, target, dtype, is_cast), reads in sorted(
      _reads_by_way(worker).items(), key=lambda item: str(item[0])):
    own_wire = wire_dtype if is_cast else "float32"
    shapes = [read.value.shape.as_list() for read in reads]
    made = groups.make_groups(shapes, dtype.size, pack_bytes)
    together = {index for group in made for index in group.members}
    made += [groups.Group((index,), False) for index in range(len(reads)) if index not in together
             and (hold or wire.is_narrowed(dtype, own_wire) or len(reads[index].aliases) > 1)]
    for group in made:
      own = tuple(reads[index] for index in group.members)
      arrivals.append(Arrival(source, target, _send(own, group, source, target, own_wire), own))
      plans.append(group)
  used = {arrival.tensor.name: arrival.tensor for arrival in arrivals}
  for target in sorted({arrival.target for arrival in arrivals} if hold is not None else ()):
    own = [arrival.tensor for arrival in arrivals if arrival.target == target]
    used.update({before.name: now for before, now in zip(own, hold(own))})
  values = {}
  for arrival, group in zip(arrivals, plans):
    tensor = used[arrival.tensor.name]
    arrived = values.setdefault(arrival.target, {})
    arrived.update(_hand_out(arrival, group, tensor))
    arrived[arrival.tensor.op.inputs[0].name] = None  # what is sent is made on the ps
  for target, arrived in values.items():
    colocated.bring(arrived, target)
  return arrivals


def _send(reads: Sequence[Read], group: groups.Group, source: str, target: str,
          wire_dtype: str) -> tf.Tensor:
  """Puts values together on their ps, and has them arrive on the target."""
  values, shapes = [read.value for read in reads], [read.value.shape for read in reads]
  with tf.control_dependencies(None), tf.name_scope("pull"):
    with _on(source):
      one = joined.join(values, shapes, group.is_flat) if len(values) > 1 else values[0]
      sent = wire.narrow(one, wire_dtype, [read.variable for read in reads],
                         [shape.num_elements() for shape in shapes])
    with _on(target):
      return tf.identity(sent, name="arrived")


def _hand_out(arrival: Arrival, group: groups.Group, tensor: tf.Tensor) -> Dict[str, tf.Tensor]:
  """Splits what arrived, and gives the parts to those that took the reads; returns them by read."""
  reads = arrival.reads
  with tf.control_dependencies(None), tf.name_scope("pull"), _on(arrival.target):
    values = [wire.widen(tensor, reads[0].value.dtype)]
    if len(reads) > 1:
      values = joined.divide(values[0], [read.value.shape for read in reads], group.is_flat)
  parts = {}
  for read, value in zip(reads, values):
    value.set_shape(read.value.shape)
    for alias in read.aliases:
      replace_input(alias, value, read.consumers)
      parts[alias.name] = value
  return parts


def _reads_by_way(worker: str) -> dict:
  """(ps, receiving task, dtype, whether cast) to the reads of this way, in the graph's order."""
  keepers = {placed.task_of_device(variable.device) for variable in tf.global_variables()}
  cast = {variable.op.name for variable in tf.trainable_variables() if not _is_assigned(variable)}
  found = {}
  for op in tf.get_default_graph().get_operations():
    if op.type not in placed.VARIABLES:
      continue
    source = placed.task_of_device(op.device)
    if not source:
      continue
    reads = [one.outputs[0] for one in op.outputs[0].consumers() if _is_free_read(one)]
    targets = {}
    for value in reads:
      for consumer in value.consumers():
        target = placed.place_of(consumer) or worker
        if target and target != source and target not in keepers:
          targets.setdefault(target, []).append(consumer)
    for target, consumers in sorted(targets.items()):
      consumers = tuple(dict.fromkeys(consumers))
      # Colocated gradients or summaries may take another read than the model does.
      used = tuple(value for value in reads if set(value.consumers()) & set(consumers))
      found.setdefault((source, target, used[0].dtype, op.name in cast), []).append(
        Read(op.name, used[0], used, consumers))
  return found


def _is_assigned(variable) -> bool:
  """Whether something assigns to it but its initializer and what restores a checkpoint."""
  for op in variable.op.outputs[0].consumers():
    if op.type in _ASSIGNS and op is not variable.initializer:
      source = op.inputs[1].op
      while source.type in ("Identity", "Reshape"):
        source = source.inputs[0].op
      if not source.type.startswith("Restore"):
        return True
  return False


def _is_free_read(op) -> bool:
  """Whether it is a read of a known float shape which waits for nothing."""
  return (op.type in _READS and not op.control_inputs and op.outputs[0].dtype.is_floating
          and op.outputs[0].shape.is_fully_defined())


def _on(task):
  return tf.device(placed.cpu_of(task))
