"""Clones: the devices of a worker compute one gradient together.

A worker with several devices is one replica. Each device gets a clone of the model and a part of
the worker's batch:

1. The clone reads the variables and computes its gradients on its device.
2. The worker takes the mean or sum of the gradients, outside any clone's device.
3. One gradient travels to the ps, asynchronously or synchronously.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.replication import gradients, towers


class ClonePart(NamedTuple):
  """The part of a batch for a clone."""

  tensors: Any  # with the structure of the batch
  # A scalar, the factor of the clone's mean loss: the number of its examples divided by the mean
  # number of examples per clone. None means 1.
  weight: Optional[tf.Tensor]


class Clones(NamedTuple):
  """The clones of a worker, which are one replica."""

  grads_and_vars: gradients.GradsAndVars  # a gradient per variable, for `apply_gradients`
  loss: tf.Tensor  # [], the mean over the clones
  update_ops: List[tf.Operation]  # of the first clone, which the update should depend on
  towers: List[towers.Tower]  # in the order of the devices


def build_clones(tower_fn: Callable[[int], tf.Tensor], devices: Sequence[str],
                 optimizer: tf.train.Optimizer, reduction: str = "mean",
                 variables_device: towers.Device = None) -> Clones:
  """Builds a clone on each device and reduces their gradients; returns a `Clones`.

  Call it where you would build a single model: in the scope of a `replica_device_setter`. The
  setter's worker device completes the clones' devices and computes the reduction. The setter's ps
  hold the variables.

  Args:
    tower_fn: called with the clone's index; returns the mean loss over its part of the batch, [].
    devices: device strings of the clones, such as `local_devices` returns.
    optimizer: this function calls its `compute_gradients`; the caller calls its `apply_gradients`.
    reduction: "mean": the gradient of the mean over the worker's batch, so that the learning rate
      has the same effect for any number n of clones; "sum": n times that gradient.
    variables_device: the place of the variables; None: the scope around the call decides. Do not
      give a setter whose scope is already around the call: it would count each variable twice.

  Raises:
    ValueError: another reduction, or an error of `towers.build_towers`.
  """
  if reduction not in gradients.REDUCTIONS:
    raise ValueError(f"reduction must be {' or '.join(gradients.REDUCTIONS)}, got {reduction!r}")
  built = towers.build_towers(tower_fn, devices, optimizer, variables_device)
  reduced = gradients.reduce_gradients([tower.grads_and_vars for tower in built], reduction)
  loss = gradients.mean_loss([tower.loss for tower in built])
  return Clones(reduced, loss, built[0].update_ops, built)


def split_batch(tensors: Any, count: int) -> list:
  """Splits a batch into `count` equal parts, a part per clone.

  Args:
    tensors: a tensor [batch, ...], or a structure of such tensors.
    count: the number of parts. The step fails unless the batch size is a multiple of `count`,
      because the mean over the parts would not be the mean over the batch. Call a dataset's `batch`
      with `drop_remainder=True`, so that no batch is smaller.
  """
  if count < 1:
    raise ValueError(f"count must be at least 1, got {count}")
  if count == 1:
    return [tensors]
  parts = [tf.split(tensor, count) for tensor in tf.nest.flatten(tensors)]
  return [tf.nest.pack_sequence_as(tensors, list(part)) for part in zip(*parts)]


def split_unevenly(tensors, size, count: int) -> List[ClonePart]:
  """Splits a batch of any size into parts; some have an example more than others.

  The mean of the parts' losses times their weights is the mean loss of the batch. So the last batch
  of the data may be smaller. A clone without an example gets the first example of the batch, with
  the weight 0.

  Args:
    tensors: a structure of tensors and sparse tensors [batch, ...]; scalars go to each clone.
    size: the number of examples, an int or a scalar int tensor, at least 1.
    count: the number of parts.
  """
  if count < 1:
    raise ValueError(f"count must be at least 1, got {count}")
  if count == 1:
    return [ClonePart(tensors, None)]
  known = tf.get_static_value(size)
  leaves = tf.nest.flatten(tensors)
  is_even = known is not None and known % count == 0
  size = tf.cast(size, tf.int64)
  parts = []
  for index in range(count):
    begin, end = size * index // count, size * (index + 1) // count
    is_empty = tf.equal(begin, end)
    begin = tf.where_v2(is_empty, tf.zeros_like(begin), begin)
    length = tf.constant(known // count, tf.int64) if is_even else tf.maximum(end - begin, 1)
    weight = tf.where_v2(is_empty, 0.0, tf.cast(count * length / size, tf.float32))
    own = [_rows(leaf, begin, length, known // count if is_even else None) for leaf in leaves]
    parts.append(ClonePart(tf.nest.pack_sequence_as(tensors, own), None if is_even else weight))
  return parts


def _rows(tensor, begin, length, known):
  """Returns rows of a tensor or sparse tensor; a scalar or another value unchanged."""
  if isinstance(tensor, tf.SparseTensor):
    others = tensor.dense_shape[1:]
    return tf.sparse.slice(tensor, tf.concat([[begin], tf.zeros_like(others)], 0),
                           tf.concat([[length], others], 0))
  if not tf.is_tensor(tensor) or tensor.shape.ndims == 0:
    return tensor
  rows = tensor[begin:begin + length]
  rows.set_shape([known] + tensor.shape.as_list()[1:] if tensor.shape.ndims else None)
  return rows


def local_devices(count: int, device_type: str = "CPU") -> List[str]:
  """Returns device strings for the first devices of a task: ["/device:CPU:0", "/device:CPU:1"]."""
  if count < 1:
    raise ValueError(f"a worker has at least one clone, got {count}")
  return ["/device:%s:%d" % (device_type, index) for index in range(count)]


def devices_here(count: int) -> List[str]:
  """Returns device strings for the clones of this process: its GPUs, or else CPU devices.

  Raises ValueError if there are GPUs, but fewer than `count`.
  """
  gpus = len(tf.config.experimental.list_physical_devices("GPU"))
  if 0 < gpus < count:
    raise ValueError(f"{count} clones need {count} GPUs, and this process sees {gpus}. Use "
                     "fewer clones, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1) to use CPU devices")
  return local_devices(count, "GPU" if gpus else "CPU")


def with_cpu_devices(count: int, config: Optional[tf.ConfigProto] = None) -> tf.ConfigProto:
  """Returns a config that makes `count` logical CPU devices, for clones without GPUs.

  A server fixes the devices of its process when it starts, so give this config to the server. A
  session on a server has the server's devices.

  Args:
    count: the number of devices, at least 1.
    config: the config to start from, which is copied; None: an empty config.
  """
  if count < 1:
    raise ValueError(f"a task has at least one CPU device, got {count}")
  result = tf.ConfigProto()
  if config is not None:
    result.CopyFrom(config)
  result.device_count["CPU"] = count
  return result
