"""Fetches the values of variables from the ps to a worker in few messages.

A model that was built under a device setter reads each variable separately, with one message per
variable. `fetch_variables` changes that in the finished graph, in this order:

1. It finds the reads whose values travel: a read of the variable on its ps, and operations on
   another task that take the value.
2. For each ps, receiving task and dtype, the values are concatenated on the ps (flat_buffers.py),
   narrowed (wire.py), sent, widened and split. The sender's operations are on the device of the
   variables, and the receiver's operations on the device of the operations that take the values. So
   the values enter or leave a GPU as one buffer.
3. The operations that took the value of a read now take its part of the arrived buffer. Small
   results that the ps computed from the values are computed on the worker (local_copies.py).

Variables, their names, slots and checkpoints do not change, nor do the results or the gradients
with respect to the variables.

`fetch_variables` does not change these reads:

- reads that wait for something, because a control input shows that the order matters;
- reads in loops and branches;
- gathers;
- reads that the initializer of a variable needs, because other variables may have no values yet;
- values that are not floating point numbers;
- values that travel to a task that has variables itself, such as Adam's powers from one ps to
  another.

Only variables that just an optimizer updates are narrowed: a variable that the model assigns to,
such as a moving average, would be rounded again in each step. A variable with several reads in a
step travels once. Call `fetch_variables` before a session runs the graph.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.graph import (
  VARIABLE_OPS,
  cpu_of,
  needed_ops,
  on_place,
  place_of_device,
  place_of_op,
  source_op,
  stand_in,
  task_of_device,
  task_of_op,
)
from tf1ps.transfer import flat_buffers, local_copies, wire
from tf1ps.transfer.wire_options import DEFAULT_PACK_BYTES

_READS = frozenset(["ReadVariableOp", "Identity"])
_ASSIGNS = frozenset(["Assign", "AssignVariableOp"])
_RESHAPES = frozenset(["Identity", "Reshape"])


class Read(NamedTuple):
  """A value that another task takes, such as a variable's."""

  name: str  # of the variable's operation
  value: tf.Tensor  # on the task that has the variable
  aliases: Tuple[tf.Tensor, ...]  # all reads of the variable that the task takes
  consumers: Tuple[tf.Operation, ...]  # the operations on the task that take them


class Arrival(NamedTuple):
  """Values of variables that travel as one message."""

  source: str  # the task that has the variables
  target: str  # the task that takes their values
  places: Tuple[str, ...]  # on the target, of the operations that take them
  tensors: Tuple[tf.Tensor, ...]  # on the target: the buffer, and further inputs of `wire.widen`
  reads: Tuple[Read, ...]  # the reads whose values are in the buffer
  is_flat: bool  # whether each value was flattened before the concatenation
  wire_dtype: str  # the type that float32 values travel as


def fetch_variables(
    pack_bytes: int = DEFAULT_PACK_BYTES, wire_dtype: str = "float32", worker: str = "",
    hold: Optional[Callable[[List[tf.Tensor]], List[tf.Tensor]]] = None,
    uses: Optional[Callable[[tf.Operation], int]] = None) -> List[Arrival]:
  """Makes small variables of the default graph travel together; returns the new arrivals.

  Args:
    pack_bytes: variables of this size or more travel alone; 0: all variables travel alone.
    wire_dtype: the type that float32 values are sent as, one of `WIRE_DTYPES`. "int8" applies only
      to gradients: values are then sent as float32.
    worker: the task of operations without a device; "": such operations are left alone.
    hold: called with the tensors that arrive at a place, such as a task or its GPU; returns the
      tensors that replace them. If `hold` is given, variables that travel alone and unchanged also
      pass through it.
    uses: returns the uses of an operation's result as an int with a bit for each use, or 0 for an
      operation that keeps its own read. Variables travel together only if their values have the
      same uses.

  Raises:
    ValueError: if an argument is out of its range.
  """
  flat_buffers.check_pack_bytes(pack_bytes)
  wire.check_wire_dtype(wire_dtype)
  arrivals = []
  for (source, places, dtype, may_narrow, _), reads in sorted(
      _reads_by_route(worker, uses).items(), key=lambda item: str(item[0][:4])):
    own_wire = wire.value_wire_dtype(wire_dtype) if may_narrow else "float32"
    groups = _groups_of(reads, pack_bytes)
    packed = {index for group in groups for index in group.members}
    groups += [
      flat_buffers.Group((index,), False) for index in range(len(reads)) if index not in packed
      and (hold or wire.is_narrowed(dtype, own_wire) or len(reads[index].aliases) > 1)]
    arrivals += [_send([reads[index] for index in group.members], group.is_flat, source, places,
                       own_wire) for group in groups]
  used = {tensor.name: tensor for arrival in arrivals for tensor in arrival.tensors}
  if hold is not None:
    for place in sorted({tensor.device for tensor in used.values()}):
      held = [tensor for tensor in used.values() if tensor.device == place]
      used.update({before.name: now for before, now in zip(held, hold(held))})
  values: Dict[str, Dict[str, Optional[tf.Tensor]]] = {}
  for arrival in arrivals:
    arrived = values.setdefault(arrival.target, {})
    arrived.update(_hand_out(arrival, [used[tensor.name] for tensor in arrival.tensors]))
    for tensor in arrival.tensors:  # the buffer is computed on the ps
      arrived[tensor.op.inputs[0].name] = None
  for target, arrived in values.items():
    local_copies.compute_on(target, arrived, initializing_ops())
  return arrivals


def send_together(source: str, target: str, moved: Sequence[Read],
                  pack_bytes: int) -> List[Arrival]:
  """Makes small values from one task to another travel together; returns the arrivals."""
  by_place: Dict[str, List[Read]] = {}
  for read in moved:
    by_place.setdefault(_place_on(source, read.value.op), []).append(read)
  arrivals = []
  for place, reads in by_place.items():
    for group in _groups_of(reads, pack_bytes):
      arrivals.append(_send([reads[index] for index in group.members], group.is_flat, place,
                            (target,), "float32"))
      _hand_out(arrivals[-1], arrivals[-1].tensors)
  return arrivals


def _groups_of(reads: Sequence[Read], pack_bytes: int) -> List[flat_buffers.Group]:
  return flat_buffers.make_groups(
    [read.value.shape.as_list() for read in reads], reads[0].value.dtype.size, pack_bytes)


def _send(reads: Sequence[Read], is_flat: bool, source: str, places: Tuple[str, ...],
          wire_dtype: str) -> Arrival:
  """Concatenates values at their place and sends them to the places on the target."""
  values, shapes = [read.value for read in reads], [read.value.shape for read in reads]
  target = task_of_device(places[0])
  with tf.control_dependencies(None), tf.name_scope("fetch"):
    with on_place(source):
      packed = flat_buffers.concat(values, shapes, is_flat) if len(values) > 1 else values[0]
      sent = wire.narrow(packed, wire_dtype, [read.name for read in reads],
                         [shape.num_elements() for shape in shapes])
    with on_place(places[0] if len(places) == 1 else cpu_of(target)):
      arrived = tuple(tf.identity(tensor, name="arrived") for tensor in sent)
  return Arrival(task_of_device(source), target, places, arrived, tuple(reads), is_flat, wire_dtype)


def _hand_out(arrival: Arrival, tensors: Sequence[tf.Tensor]) -> Dict[str, tf.Tensor]:
  """Gives the parts of the arrived buffer to the consumers; returns the parts by read."""
  parts: Dict[str, tf.Tensor] = {}
  for place in arrival.places:
    for read, value in zip(arrival.reads, _split(arrival, tensors, place)):
      consumers = [op for op in read.consumers if _place_on(arrival.target, op) == place
                   or len(arrival.places) == 1]
      for alias in read.aliases:
        stand_in(alias, value, consumers)
        parts.setdefault(alias.name, value)
  return parts


def _split(arrival: Arrival, tensors: Sequence[tf.Tensor], place: str) -> List[tf.Tensor]:
  """Widens and splits the arrived buffer at a place; returns the values of the reads."""
  reads = arrival.reads
  with tf.control_dependencies(None), tf.name_scope("fetch"), on_place(place):
    values = [wire.widen(tensors, reads[0].value.dtype, arrival.wire_dtype)]
    if len(reads) > 1:
      values = flat_buffers.split(values[0], [read.value.shape for read in reads], arrival.is_flat)
  for read, value in zip(reads, values):
    value.set_shape(read.value.shape)
  return values


def _reads_by_route(worker: str, uses) -> dict:
  """Finds the reads by (place, places that take them, dtype, whether they may be narrowed, uses).
  """
  initializing = initializing_ops()
  homes = {task_of_device(variable.device) for variable in tf.global_variables()} - {worker}
  narrow = {variable.op.name for variable in tf.trainable_variables() if not _is_assigned(variable)}
  by_route: Dict[Any, Any] = {}
  for op in tf.get_default_graph().get_operations():
    if op.type not in VARIABLE_OPS:
      continue
    source = task_of_device(op.device)
    if not source:
      continue
    reads = [reader.outputs[0] for reader in op.outputs[0].consumers() if _is_free_read(reader)]
    targets: Dict[str, List[tf.Operation]] = {}
    for value in reads:
      for consumer in value.consumers():
        target = _task_of(consumer) or worker
        if (target and target != source and target not in homes
            and consumer not in initializing and (uses is None or uses(consumer))):
          targets.setdefault(target, []).append(consumer)
    for target, takers in sorted(targets.items()):
      consumers = tuple(dict.fromkeys(takers))
      # Colocated gradients or summaries may take a different read than the model takes.
      used = tuple(value for value in reads if set(value.consumers()) & set(consumers))
      use = 0
      for consumer in consumers if uses is not None else ():
        use |= uses(consumer)
      places = tuple(sorted({_place_on(target, consumer) for consumer in consumers}))
      route = place_of_device(op.device), places, used[0].dtype, op.name in narrow, use
      by_route.setdefault(route, []).append(
        Read(op.name, _value_on(source, op, used[0]), used, consumers))
  return by_route


def _place_on(task: str, op) -> str:
  """The place of an operation on a task, for an operation whose device may not name the task."""
  place = place_of_op(op)
  return place if task_of_device(place) == task else task + place[len(task_of_device(place)):]


def _task_of(op) -> str:
  """The task of an operation; for a copy without a device, the task of the copy's consumers.

  TensorFlow makes such a copy for `caching_device="/cpu:0"`.
  """
  tasks = {task_of_op(op)}
  if tasks == {""} and op.type == "Identity":
    tasks = {task_of_op(consumer) for consumer in op.outputs[0].consumers()} - {""}
  return tasks.pop() if len(tasks) == 1 else ""


def _value_on(source, variable, read: tf.Tensor) -> tf.Tensor:
  """Returns a read on the variable's task; a ref variable's caching device may be elsewhere."""
  if read.op.type != "Identity" or task_of_device(read.op.device) == source:
    return read
  with tf.control_dependencies(None), on_place(place_of_device(variable.device)):
    return tf.identity(variable.outputs[0], name="fetch/read")


def initializing_ops() -> Set[tf.Operation]:
  """Finds the operations that the initializers of variables need."""
  return set(needed_ops(
    [variable.initializer for variable in tf.global_variables() + tf.local_variables()]))


def _is_assigned(variable) -> bool:
  """Whether anything but its initializer or the restoring of a checkpoint assigns to a variable."""
  return any(
    op.type in _ASSIGNS and op is not variable.initializer
    and not source_op(op.inputs[1], _RESHAPES).type.startswith("Restore")
    for op in variable.op.outputs[0].consumers())


def _is_free_read(op) -> bool:
  """Whether an operation is a read of a known float shape that waits for nothing."""
  return (op.type in _READS and not op.control_inputs and op.outputs[0].dtype.is_floating
          and op.outputs[0].shape.is_fully_defined())
