"""Training without a ps: mirrored variables, whose gradients the workers reduce among themselves.

Each device of each task has its own variables, which are equal at all times:

1. `check_op`, once: the tasks compare their models.
2. `start_op`, once, after the variables are initialised or restored: all tasks take the first
   task's values.
3. `train_op`, for each step, on all tasks at the same time: each device computes the gradients of
   its part of the batch; the tasks take the mean over all devices (collectives.py); each device
   applies the mean to its own variables. Equal values and equal gradients lead to equal
   updates, so nothing else has to travel.

The loss travels with the gradients. A sparse gradient stays sparse. If the number of its rows is
known when the graph is built, indices and rows are gathered. Otherwise the gradient of the whole
table travels, with a mark for each row that a device has, and only these rows are updated.

One process with several devices makes the same call, and needs no server.

Each run of one of these operations waits for all other tasks (peers.py bounds the wait). All tasks
must run the same operations in the same order, one operation at a time. After the loss of a task,
each task opens a new session and begins with 1 again.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.replication import collectives, gradients, session_ops, towers


class Mirrored(NamedTuple):
  """This task's part of a mirrored model."""

  train_op: tf.Operation  # one update of this task's variables; all tasks run it together
  loss: tf.Tensor  # [], the mean over all devices of all tasks
  check_op: tf.Operation  # fails if the tasks' models differ; run it first
  start_op: tf.Operation  # gives this task's variables the first task's values
  mirrors: List[towers.Tower]  # this task's mirrors, by device, each with its own variables
  vote: Optional[tf.Tensor] = None  # [], the mean of the votes over all devices


def build_mirrored(tower_fn: Callable[[int], tf.Tensor], devices: Sequence[str],
                   make_optimizer: Callable[[], tf.train.Optimizer], task_index: int = 0,
                   num_tasks: int = 1, global_step: Optional[tf.Variable] = None,
                   clip_norm: Optional[float] = None, name: str = "mirrored",
                   vote: Optional[tf.Tensor] = None,
                   tasks: Optional[Sequence[str]] = None) -> Mirrored:
  """Builds this task's part of a model that all tasks mirror.

  Args:
    tower_fn: called with the index of the device among this task's; returns the mean loss over
      its part of the batch, [].
    devices: this task's devices, such as ["/job:worker/task:1/device:CPU:0"]; each task has the
      same number of devices.
    make_optimizer: called for each device: each has its own slots.
    task_index: this task's place, from 0; all tasks take the values of task 0.
    num_tasks: the number of tasks that build this.
    global_step: the global step; each task has its own. None: the graph's global step, which is
      created on the first device if it does not exist.
    clip_norm: if given, the mean gradients are clipped to this global norm.
    name: the name of the group; two mirrored models of a job need different names.
    vote: a scalar float of this task, whose mean travels with the gradients, or None. Either all
      tasks give a vote, or no task does.
    tasks: the names of all tasks, such as "/job:worker/task:1", in one order everywhere; None:
      tasks 0 to num_tasks - 1 of the job of `devices`.

  Returns:
    A `Mirrored`. The first device's variables have the names of a model without mirrors, and are
    global; the others are local variables below `mirror_1/` and so on, which no `Saver` saves and
    `start_op` fills.

  Raises:
    ValueError: the arguments or the losses are wrong, or a shape or type cannot travel.
  """
  devices = towers.check_devices(devices)
  if not 0 <= task_index < num_tasks:
    raise ValueError(f"task_index must be from 0 to num_tasks - 1, got {task_index} of {num_tasks}")
  group = collectives.make_group(
    name, task_index, tasks or _tasks_of_job(devices[0], num_tasks), devices)
  with tf.device(devices[0]):
    global_step = tf.train.get_or_create_global_step() if global_step is None else global_step
  optimizers = [make_optimizer() for _ in devices]
  # The variables of each mirror, in the order of creation.
  made: List[List[tf.Variable]] = [[] for _ in devices]
  mirrors, updates = [], []
  for index, device in enumerate(devices):
    with tf.device(device), _noting(made[index], index):
      mirrors.append(_build_mirror(tower_fn, index, device, optimizers[index]))
  _check_alike(mirrors, [[pair[1] for pair in mirror.grads_and_vars] for mirror in mirrors])
  kinds = [_kind(parts) for parts in zip(*[mirror.grads_and_vars for mirror in mirrors])]
  losses, votes, means = _reduce(group, mirrors, kinds, vote)
  for mirror, optimizer, reduced in zip(mirrors, optimizers, means):
    with tf.device(mirror.device), _noting(made[mirror.index], mirror.index), \
        tf.control_dependencies(mirror.update_ops):
      if clip_norm is not None:
        reduced = gradients.clip_gradients(reduced, clip_norm)
      updates.append(optimizer.apply_gradients(reduced))
  _check_alike(mirrors, made)
  with tf.control_dependencies([*updates, *group.outbox]), tf.device(devices[0]):
    train_op = tf.assign_add(global_step, 1).op
  layout = _layout(tf.global_variables())
  start_op = _start_op(group, made)
  generation = tf.placeholder_with_default(tf.constant(0, tf.int64), [], "generation_of_session")
  check_op = collectives.agree(group, repr((len(devices), kinds, layout)), generation)
  session_ops.add_all_reduce_start(check_op, start_op, generation)
  return Mirrored(train_op, losses[0], check_op, start_op, mirrors, votes[0])


def _tasks_of_job(device, count):
  """Returns the names of the first tasks of a device's job."""
  job = tf.DeviceSpec.from_string(device).job
  if job is None and count > 1:
    raise ValueError(f"devices must name this task where there are {count} tasks, such as "
                     f"/job:worker/task:1/device:CPU:0, got {device}")
  return [f"/job:{job}/task:{index}" for index in range(count)]


@contextlib.contextmanager
def _noting(made, index):
  """Adds the global variables of the context to `made`; makes them local unless `index` is 0."""
  variables = tf.get_collection_ref(tf.GraphKeys.GLOBAL_VARIABLES)
  known = len(variables)
  yield
  made.extend(variables[known:])
  if index:
    tf.get_collection_ref(tf.GraphKeys.LOCAL_VARIABLES).extend(variables[known:])
    del variables[known:]


def _build_mirror(tower_fn, index, device, optimizer):
  """Builds the model, and the gradients of the variables that the model makes."""
  trainable = tf.get_collection_ref(tf.GraphKeys.TRAINABLE_VARIABLES)
  known = len(trainable) if index else 0
  scope = tf.variable_scope("mirror_%d" % index) if index else contextlib.nullcontext()
  with scope, towers.own_collections(keep=not index):
    loss = towers.checked_loss(tower_fn(index), index)
    update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    variables = trainable[known:]
    if index:
      del trainable[known:]
    grads_and_vars = optimizer.compute_gradients(loss, variables)
  return towers.Tower(index, device, loss, grads_and_vars, update_ops)


def _check_alike(mirrors, variables):
  """Raises ValueError unless all mirrors of this task have the same variables."""
  first = _layout(variables[0])
  for mirror, own in zip(mirrors, variables):
    if [entry[1:] for entry in _layout(own)] != [entry[1:] for entry in first]:
      raise ValueError(f"tower_fn({mirror.index}) has made other variables than tower_fn(0): "
                       f"{_layout(own)} and {first}")


def _layout(variables):
  """Returns the name, type and shape of each variable; raises ValueError where it has no shape."""
  for variable in variables:
    if not variable.shape.is_fully_defined():
      raise ValueError(f"{variable.op.name} has the shape {variable.shape}, and the shape of a "
                       "mirrored variable must be known when the graph is built")
  return [(variable.op.name, variable.dtype.base_dtype.name, variable.shape.as_list())
          for variable in variables]


def _kind(parts):
  """Returns how the gradients of a variable travel, from the (gradient, variable) of each mirror.

  A number: each device gathers this number of rows from each other device. "table": the whole
  sparse gradient travels. "dense": a dense gradient travels, zeros if a mirror has no gradient.
  """
  slices = [gradient for gradient, _ in parts if isinstance(gradient, tf.IndexedSlices)]
  if not slices:
    return "dense"
  rows = {part.values.shape.as_list()[0] if part.values.shape.is_fully_defined() else None
          for part in slices}
  return "table" if len(slices) < len(parts) or len(rows) > 1 else rows.pop() or "table"


def _reduce(group, mirrors, kinds, vote):
  """Returns, for each mirror: the mean loss, vote, and (gradient, variable) of all devices."""
  packs = [[mirror.loss] + ([] if vote is None else [vote]) for mirror in mirrors]
  means = [[None] * len(kinds) for _ in mirrors]
  places = {}  # the position of each variable's gradient in the packs
  for position, kind in enumerate(kinds):
    parts = [mirror.grads_and_vars[position] for mirror in mirrors]
    if kind not in ("dense", "table"):
      for own, mean in zip(means, _gather(group, [part[0] for part in parts], position)):
        own[position] = mean
      continue
    places[position] = len(packs[0])
    for pack, mirror, part in zip(packs, mirrors, parts):
      with tf.device(mirror.device):
        pack.extend(_dense(*part, kind == "table"))
  reduced = collectives.mean(group, packs)
  for mirror, own, pack in zip(mirrors, means, reduced):
    with tf.device(mirror.device):
      for position, place in places.items():
        mean = pack[place]
        own[position] = _touched(mean, pack[place + 1]) if kinds[position] == "table" else mean
  variables = [[pair[1] for pair in mirror.grads_and_vars] for mirror in mirrors]
  votes = [None if vote is None else pack[1] for pack in reduced]
  return [pack[0] for pack in reduced], votes, [list(zip(*pair)) for pair in zip(means, variables)]


def _dense(gradient, variable, is_table):
  """Returns [the dense gradient, or zeros for None], and for a table also the marks of its rows."""
  shape, dtype = variable.shape, variable.dtype.base_dtype
  dense = tf.zeros(shape, dtype) if gradient is None else tf.convert_to_tensor(gradient)
  dense.set_shape(shape)
  if not is_table:
    return [dense]
  rows = shape.as_list()[0]
  marks = tf.zeros([rows], dtype)
  if isinstance(gradient, tf.IndexedSlices):
    marks = tf.unsorted_segment_sum(tf.ones_like(gradient.indices, dtype), gradient.indices, rows)
    marks.set_shape([rows])
  elif gradient is not None:
    marks = tf.ones([rows], dtype)
  return [dense, marks]


def _touched(dense, marks):
  """Returns the rows of a dense gradient that a device has."""
  indices = tf.reshape(tf.where(marks > 0), [-1])
  return tf.IndexedSlices(tf.gather(dense, indices), indices,
                          tf.constant(dense.shape.as_list(), tf.int64))


def _gather(group, slices, position):
  """Returns the mean of sparse gradients, for each mirror."""
  values = collectives.gather(group, [part.values for part in slices], "values %d" % position)
  indices = []
  for device, part in zip(group.devices, slices):
    with tf.device(device):
      indices.append(tf.cast(part.indices, tf.int64))
  indices = collectives.gather(group, indices, "indices %d" % position)
  gathered = []
  for device, rows, places, part in zip(group.devices, values, indices, slices):
    with tf.device(device):
      gathered.append(tf.IndexedSlices(rows / group.size, places, part.dense_shape))
  return gathered


def _start_op(group, made):
  """Builds the operation that gives all variables of all mirrors the first task's values."""
  assigned = []
  if group.others:
    with tf.device(group.devices[0]):
      variables = tf.global_variables()
      values = collectives.broadcast(group, [variable.read_value() for variable in variables])
      assigned = [variable.assign(value).op for variable, value in zip(variables, values)]
  with tf.control_dependencies(assigned):
    copied = [copy.assign(first.read_value()).op
              for copies in made[1:] for copy, first in zip(copies, made[0])]
    return tf.group(*assigned, *copied)
