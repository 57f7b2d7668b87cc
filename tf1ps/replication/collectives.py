"""A group of tasks that reduce, gather and broadcast among themselves, without a ps.

Each task builds its own graph, and all tasks run it at the same time. A message is an element of a
queue on the CPU of the task that receives it: the sender's graph enqueues the message, and the
receiver's graph dequeues it. So the session of a task sees all tasks of the group, and its run ends
with an error when any of these tasks is lost, as a run on a ps does.

- `mean`: each task is responsible for a share of the values. It gets this share from each other
  task, and sends the mean to all tasks. So each value travels twice, as in a ring, and the results
  of all tasks are equal to the last digit.
- `gather`: each task sends its values to all others. `broadcast`: the first task does.

TensorFlow's own collectives are not used: on TensorFlow 2 a server that has lost a task of a group
refuses each further collective, and each new process of that task, until its own process ends.

All tasks must run the same operations, in the same order. With these operations they must run the
operations of the `outbox`, because no result depends on the sending of a message. Tasks that
disagree would wait for each other forever, so `agree` compares them first, in a queue whose name
depends on no size. Sessions that begin together share a number, their generation, which is the last
value of each message. If an earlier session has left a message behind, `agree` throws the message
away, or the receiver refuses it (`is_late_message`). `agree` also throws away a message of a later
session, so begin no session before all earlier sessions have ended.

Tensors of one type are concatenated before they travel and split afterwards.
"""

from __future__ import annotations

import zlib
from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.compat import failed_assertions

_TYPES = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)
_LATE = " has sent a message of an earlier session"
GENERATIONS = 2000  # a generation is from 0 to 1999: float16 represents all these numbers exactly


class ReplicaGroup(NamedTuple):
  """The devices that work together."""

  name: str  # the same in all tasks; two models of a job need two names
  task_index: int  # this task's place among the group's tasks; the values of the first task count
  tasks: Sequence[str]  # all tasks, in the same order everywhere, such as "/job:worker/task:0"
  devices: Sequence[str]  # this task's devices; each task has the same number of devices
  home: str  # the device of this task's messages
  generation: tf.Variable  # int64 [], which `agree` sets
  inbox: List[tf.FIFOQueue]  # the queues of this task, which `agree` empties
  outbox: List[tf.Operation]  # the messages of `mean` and `gather`, for the same run

  @property
  def size(self) -> int:
    """The number of devices in all tasks."""
    return len(self.tasks) * len(self.devices)

  @property
  def others(self) -> List[int]:
    """The indices of the other tasks."""
    return [index for index in range(len(self.tasks)) if index != self.task_index]


def make_group(name: str, task_index: int, tasks: Sequence[str],
               devices: Sequence[str]) -> ReplicaGroup:
  """Returns a group without messages, of this task, which is `tasks[task_index]`.

  It adds the variable of the generation to the graph.
  """
  home = _cpu(tasks[task_index]) if len(tasks) > 1 else devices[0]
  with tf.device(home):
    # The variable is in no collection, because only `agree` gives it a value.
    generation = tf.Variable(
      tf.constant(0, tf.int64), trainable=False, collections=[], use_resource=True,
      name="tf1ps_generation")
  return ReplicaGroup(name, task_index, tasks, devices, home, generation, [], [])


def mean(group: ReplicaGroup, tensors: Sequence[Sequence[tf.Tensor]]) -> List[List[tf.Tensor]]:
  """Takes the mean over all devices of the group.

  Args:
    group: the group.
    tensors: a list for each device of this task, in the order of the devices. Its tensors have
      floating types and static shapes, which are the same for every device of every task.

  Returns:
    For each device of this task, on it: the means, in the order of the tensors.

  Raises:
    ValueError: a tensor has a type that cannot be sent, or a shape that is not known.
  """
  return _by_type(group, "mean", tensors, lambda flats: _mean(group, flats))


def gather(group: ReplicaGroup, tensors: Sequence[tf.Tensor], role: str) -> List[tf.Tensor]:
  """Gathers and concatenates tensors [rows, ...] of all devices of the group.

  Args:
    group: the group.
    tensors: a tensor for each device of this task; all devices of all tasks have the same shape.
    role: a name for the tensors, the same in all tasks; each name is used once in a group.

  Returns:
    A tensor [group.size * rows, ...] on each device of this task, with the same values.
  """
  shape = _static_shape(tensors[0])
  with tf.device(group.devices[0]):
    own = tf.reshape(tf.concat(tensors, 0), [-1])
    count = len(tensors) * _size(shape)
    parts = _swap(group, "gather " + role, [own] * len(group.tasks), [count] * len(group.tasks))
    rows = tf.reshape(tf.concat(parts, 0), [group.size * shape[0]] + shape[1:])
  return _on_each(group, rows)


def broadcast(group: ReplicaGroup, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
  """Returns the first task's values of tensors, on the first device of every task.

  Args:
    group: the group; one device of each task takes part.
    tensors: tensors of static shapes, which are the same in all tasks.

  Raises:
    ValueError: a tensor has a type that cannot be sent, or a shape that is not known.
  """
  firsts = group._replace(devices=group.devices[:1])
  return _by_type(firsts, "broadcast", [tensors], lambda flats: [_broadcast(firsts, *flats)])[0]


def agree(group: ReplicaGroup, plan: str, generation: Optional[tf.Tensor] = None) -> tf.Operation:
  """Returns an operation that fails, in every task, if tasks of the group disagree.

  In each session, run it alone, before all other operations of the group. Build it after the other
  operations, because it empties their queues on this task.

  Args:
    group: the group; one device of each task takes part.
    plan: a text that must be the same in all tasks.
    generation: int64 [], from 0 to GENERATIONS - 1; None: 0. Tasks agree if their generations are
      equal.
  """
  if generation is None:
    generation = tf.constant(0, tf.int64)
  with tf.device(group.home):
    emptied = [queue.dequeue_many(queue.size()).op for queue in group.inbox]
    with tf.control_dependencies([*emptied, group.generation.assign(generation).op]):
      own = tf.stack([generation, tf.constant(zlib.crc32(plan.encode()), tf.int64)])
    sent = [_send(group, "agree", index, own) for index in group.others]
    taken = [_await_generation(_queue(group, "agree", index, own), generation)
             for index in group.others]
    is_equal = tf.reduce_all([tf.equal(message, own) for message in taken] or [True])
    with tf.control_dependencies(sent):
      return _assert(
        is_equal, "the tasks of the group %r have built different models: names, types and shapes "
        "of variables and gradients must be the same in all tasks, and the number of devices too; "
        "here: %s" % (group.name, plan))


def is_late_message(error: BaseException) -> bool:
  """Whether a run failed because another task's message of an earlier session came after its start.

  New sessions of all tasks may succeed.
  """
  return any(text.endswith(_LATE) for text in failed_assertions(error))


def _await_generation(queue, generation):
  """Dequeues messages from a queue of `agree`, until a message is of this generation."""
  def take(message):
    del message
    taken = queue.dequeue()
    taken.set_shape([2])
    return taken

  return tf.nest.flatten(tf.while_loop(
    lambda message: tf.not_equal(message[0], generation), take,
    [tf.constant([-1, 0], tf.int64)]))[0]


def _mean(group, flats):
  """Takes the mean of a tensor [n] for each device; returns the results, each on its device."""
  with tf.device(group.devices[0]):
    total = flats[0] if len(flats) == 1 else tf.add_n(flats)
    count, tasks = _static_shape(total)[0], len(group.tasks)
    sizes = [count // tasks + (index < count % tasks) for index in range(tasks)]
    parts = _swap(group, "parts", tf.split(total, sizes), [sizes[group.task_index]] * tasks)
    own = (parts[0] if tasks == 1 else tf.add_n(parts)) / tf.cast(group.size, total.dtype)
    means = tf.concat(_swap(group, "means", [own] * tasks, sizes), 0)
  return _on_each(group, means)


def _broadcast(group, flat):
  with tf.device(group.devices[0]):
    if group.task_index:
      return _receive(group, "broadcast", 0, flat)
    message = _signed(group, flat)
    with tf.control_dependencies([_send(group, "broadcast", index, message)
                                  for index in group.others]):
      return tf.identity(flat)


def _on_each(group, tensor):
  copies = []
  for device in group.devices:
    with tf.device(device):
      copies.append(tf.identity(tensor))
  return copies


def _swap(group, what, sent, sizes):
  """Sends a tensor to each task, and gets a tensor from each task.

  Args:
    group: the group.
    what: the name of the messages.
    sent: a tensor [n] for each task, in their order.
    sizes: the number of values that each task sends to this task.

  Returns:
    The tensors of all tasks, including this task's own tensor.
  """
  own = group.task_index
  group.outbox.extend(
    _send(group, what, index, _signed(group, sent[index])) for index in group.others)
  return [sent[own] if index == own else
          _receive(group, what, index, tf.TensorSpec([sizes[index]], sent[own].dtype))
          for index in range(len(group.tasks))]


def _signed(group, flat):
  """Returns the values [n] with the generation behind them."""
  return tf.concat([flat, tf.reshape(tf.cast(group.generation, flat.dtype), [1])], 0)


def _send(group, what, index, message):
  """Returns the operation that puts a message into the queue on a task."""
  with tf.device(_cpu(group.tasks[index])):
    return _queue(group, what, group.task_index, message).enqueue(message)


def _receive(group, what, index, like):
  """Returns the values, of this shape [n] and type, of the next message of a task."""
  size = like.shape.as_list()[0]
  with tf.device(group.home):
    queue = _queue(group, what, index, tf.TensorSpec([size + 1], like.dtype))
    group.inbox.append(queue)
    message = queue.dequeue()
    with tf.control_dependencies([_assert(
        tf.equal(message[size], tf.cast(group.generation, like.dtype)),
        group.tasks[index] + _LATE)]):
      values = tf.slice(message, [0], [size])
  values.set_shape([size])
  return values


def _queue(group, what, sender, like):
  """Builds the queue, on the device of the scope, for messages like this one."""
  shape = like.shape.as_list()
  name = "tf1ps/%s/%s/%s/%s/%d of %d" % (
    group.name, what, like.dtype.base_dtype.name, "x".join(map(str, shape)), sender,
    len(group.tasks))
  return tf.FIFOQueue(2, [like.dtype.base_dtype], [shape], shared_name=name,
                      name="peer_messages")  # step_time.py knows it


def _assert(condition, text):
  # Not tf.Assert, which logs an error if no Python code uses its result: a session runs this one.
  return tf.raw_ops.Assert(condition=condition, data=[tf.constant(text)], summarize=3)


def _cpu(task):
  return "%s/device:CPU:0" % task


def _by_type(group, what, tensors, function: Callable):
  """Concatenates each device's tensors of one type, calls function(flats), and splits again."""
  _check(what, tensors)
  results: List[list] = [[None] * len(own) for own in tensors]
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
