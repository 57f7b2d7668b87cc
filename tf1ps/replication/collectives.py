"""A group of devices that reduce and broadcast by TensorFlow's own collectives, without a ps.

Each task of the group builds its own graph with one operation per device, and all tasks run it at
the same time. TensorFlow's servers match the operations by keys and pass the tensors in a ring.
They need:

- one leader, which numbers the steps: `group_config`, in the config of the servers and sessions;
- the same keys for the same tensors. This module makes them from the group's name, the kind of
  collective, and the types and sizes of the tensors, so that two models on the same servers do not
  mix (1.15 remembers the first use of a key);
- the same collectives in each run: all tasks fetch the same tensors that depend on collectives, in
  the same number of runs.

Tasks that disagree would wait for each other forever, so `agree` compares them first, by a key that
depends on no size. Tensors of one type are concatenated before they travel and split afterwards.
"""

from __future__ import annotations

import zlib
from typing import List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

_TYPES = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)  # that collectives carry


class Group(NamedTuple):
  """The devices that work together."""

  name: str  # the same in all tasks; two models of one job need two names
  task_index: int  # this task's place among the group's tasks; the first one's values count
  num_tasks: int  # the number of tasks that build the group
  devices: List[str]  # this task's; all tasks have the same number

  @property
  def size(self) -> int:
    """The number of devices in all tasks."""
    return self.num_tasks * len(self.devices)


def group_config(leader: str, config: Optional[tf.ConfigProto] = None) -> tf.ConfigProto:
  """Returns a config for the servers and sessions of a group of several tasks.

  Args:
    leader: the group's first task, such as "/job:worker/task:0", the same in all tasks.
    config: the config to start from, which is copied; None: an empty one.

  Raises:
    ValueError: `leader` names no job and task.
  """
  spec = tf.DeviceSpec.from_string(leader)
  if spec.job is None or spec.task is None:
    raise ValueError(f'leader must be a task such as "/job:worker/task:0", got {leader!r}')
  result = tf.ConfigProto()
  if config is not None:
    result.CopyFrom(config)
  result.experimental.collective_group_leader = (
    f"/job:{spec.job}/replica:{spec.replica or 0}/task:{spec.task}")
  return result


def mean(group: Group, tensors: Sequence[Sequence[tf.Tensor]]) -> List[List[tf.Tensor]]:
  """Takes the mean over all devices of the group.

  Args:
    group: the group.
    tensors: for each device of this task, in their order: tensors of floating types, of static
      shapes, the same for each device of each task.

  Returns:
    For each device of this task, on it: the means, in the order of the tensors.

  Raises:
    ValueError: a type that no collective carries, or a shape that is not known.
  """
  return _by_type(group, "mean", tensors, lambda flats: _mean(group, flats))


def gather(group: Group, tensors: Sequence[tf.Tensor], role: str) -> List[tf.Tensor]:
  """Gathers and concatenates tensors [rows, ...] of all devices of the group.

  Args:
    group: the group.
    tensors: one for each device of this task, of one static shape on each device of each task.
    role: a name for the tensors, the same in all tasks and only used once in a group.

  Returns:
    A tensor [group.size * rows, ...] on each device of this task, equal on all.
  """
  shape = _static_shape(tensors[0])
  key = _key(group, "gather", role, tensors[0].dtype.name, shape)
  gathered = []
  for device, tensor in zip(group.devices, tensors):
    with tf.device(device):
      gathered.append(tensor if group.size == 1 else tf.raw_ops.CollectiveGather(
        input=tensor, group_size=group.size, group_key=_group_key(group), instance_key=key,
        shape=[group.size * shape[0]] + shape[1:]))
  return gathered


def broadcast(group: Group, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
  """Returns the first task's values of tensors, on the first device of every task.

  Args:
    group: the group; one device of each task takes part.
    tensors: of static shapes, the same in all tasks.

  Raises:
    ValueError: a type that no collective carries, or a shape that is not known.
  """
  firsts = group._replace(devices=group.devices[:1])
  return _by_type(firsts, "broadcast", [tensors], lambda flats: _broadcast(firsts, flats))[0]


def agree(group: Group, plan: str) -> tf.Operation:
  """Returns an operation that fails, in every task, if tasks of the group disagree.

  Run it alone and first: whether tasks meet in a run depends on all keys in it.

  Args:
    group: the group; one device of each task takes part.
    plan: a text that must be the same in all tasks.
  """
  firsts = group._replace(devices=group.devices[:1])
  with tf.device(firsts.devices[0]):
    digest = tf.constant([zlib.crc32(plan.encode())], tf.int64)
    digests, = gather(firsts, [digest], "agree")
    # tf.Assert warns of a result that only a session uses.
    return tf.raw_ops.Assert(condition=tf.reduce_all(tf.equal(digests, digest)), data=[tf.constant(
      "the tasks of the group %r have built different models: names, types and shapes of variables "
      "and gradients must be the same in all tasks, and the number of devices too; here: %s"
      % (group.name, plan))], summarize=3)


def _mean(group, flats):
  """Takes the mean of one tensor for each device; returns the results, each on its device."""
  if group.size == 1:
    return [tf.identity(flat) for flat in flats]
  key = _key(group, "mean", flats[0].dtype.name, _static_shape(flats[0]))
  reduced = []
  for device, flat in zip(group.devices, flats):
    with tf.device(device):
      reduced.append(tf.raw_ops.CollectiveReduce(
        input=flat, group_size=group.size, group_key=_group_key(group), instance_key=key,
        merge_op="Add", final_op="Div", subdiv_offsets=[0]))
  return reduced


def _broadcast(group, flats):
  flat, = flats
  if group.size == 1:
    return [tf.identity(flat)]
  shape = _static_shape(flat)
  arguments = dict(
    group_size=group.size, group_key=_group_key(group), shape=shape,
    instance_key=_key(group, "broadcast", flat.dtype.name, shape))
  with tf.device(group.devices[0]):
    if group.task_index == 0:
      return [tf.raw_ops.CollectiveBcastSend(input=flat, **arguments)]
    return [tf.raw_ops.CollectiveBcastRecv(T=flat.dtype, **arguments)]


def _by_type(group, what, tensors, function):
  """Concatenates each device's tensors of one type, calls function(flats), and splits again."""
  _check(what, tensors)
  results = [[None] * len(own) for own in tensors]
  for dtype in sorted({tensor.dtype.base_dtype for tensor in tensors[0]}, key=lambda d: d.name):
    chosen = [i for i, tensor in enumerate(tensors[0]) if tensor.dtype.base_dtype == dtype]
    shapes = [_static_shape(tensors[0][i]) for i in chosen]
    flats = []
    for device, own in zip(group.devices, tensors):
      with tf.device(device), tf.name_scope(what):
        flats.append(tf.concat([tf.reshape(own[i], [-1]) for i in chosen], 0))
    for device, own, flat in zip(group.devices, results, function(flats)):
      with tf.device(device), tf.name_scope(what):
        parts = tf.split(flat, [_size(shape) for shape in shapes])
        for i, part, shape in zip(chosen, parts, shapes):
          own[i] = tf.reshape(part, shape)
  return results


def _check(what, tensors):
  for tensor in tensors[0]:
    if tensor.dtype.base_dtype not in _TYPES:
      raise ValueError(f"{tensor.name} is {tensor.dtype.base_dtype.name}; a {what} carries "
                       + ", ".join(dtype.name for dtype in _TYPES))
    _static_shape(tensor)


def _static_shape(tensor) -> List[int]:
  if not tensor.shape.is_fully_defined():
    raise ValueError(f"{tensor.name} has the shape {tensor.shape}: collectives need the shape when "
                     "the graph is built")
  return tensor.shape.as_list()


def _size(shape):
  size = 1
  for dimension in shape:
    size *= dimension
  return size


def _group_key(group) -> int:
  return _number("group", group.name, group.num_tasks, len(group.devices))


def _key(group, *what) -> int:
  return _number(group.name, group.num_tasks, len(group.devices), *what)


def _number(*what) -> int:
  """Returns a positive number of 31 bits that depends on all arguments, equal in each process."""
  return zlib.crc32(repr(what).encode()) & 0x7fffffff or 1
