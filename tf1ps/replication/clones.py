"""Clones: the devices of one node compute one gradient, which the node's update then uses.

A worker with several devices is one replica, not several: each device gets a clone of the model and
a part of the worker's batch, their gradients are reduced on the worker, and one gradient travels to
the ps, asynchronously or synchronously, as that of a worker with one device does. In order:

1. A clone on each local device reads the variables, from the ps or wherever they live.
2. Its gradients are computed on its device.
3. Mean or sum are taken on the worker, outside of any clone's device.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.replication import gradients, towers


class Clones(NamedTuple):
  """The clones of one worker, as one replica."""

  grads_and_vars: gradients.GradsAndVars  # one gradient a variable, for `apply_gradients`
  loss: tf.Tensor  # [], the mean over the clones
  update_ops: List[tf.Operation]  # of the first clone, which the update should depend on
  towers: List[towers.Tower]  # in the order of the devices


def build_clones(tower_fn: Callable[[int], tf.Tensor], devices: Sequence[str],
                 optimizer: tf.train.Optimizer, reduction: str = "mean",
                 variables_device: towers.Device = None) -> Clones:
  """Builds a clone on each device and reduces their gradients.

  To be called where a single model would be built: in the scope of a `replica_device_setter`, whose
  worker device completes the clones' devices and holds the reduction, and whose ps have the
  variables.

  Args:
    tower_fn: called with the clone's index; returns the mean loss over its part of the batch, [].
    devices: device strings of the clones, such as `local_devices` returns.
    optimizer: whose `compute_gradients` is used, and whose `apply_gradients` the caller calls.
    reduction: "mean": the gradient of the mean over the worker's batch, so that the learning rate
      means the same whatever the number of clones; "sum": n times that.
    variables_device: where variables live; None: what is around decides.

  Returns:
    A `Clones`.

  Raises:
    ValueError: another reduction, or as `towers.build_towers`.
  """
  if reduction not in gradients.REDUCTIONS:
    raise ValueError(
      f"reduction must be {' or '.join(gradients.REDUCTIONS)}, got {reduction!r}")
  built = towers.build_towers(tower_fn, devices, optimizer, variables_device)
  reduced = gradients.reduce_gradients([tower.grads_and_vars for tower in built], reduction)
  loss = gradients.mean_loss([tower.loss for tower in built])
  return Clones(reduced, loss, built[0].update_ops, built)


def split_batch(tensors, count: int) -> list:
  """Splits a batch into equal parts, one a clone.

  Args:
    tensors: a tensor [batch, ...], or a structure of such tensors.
    count: how many parts; the batch must be a multiple of it (`drop_remainder=True` of a dataset's
      `batch` sees to that), or the step fails, as the mean would not be that of the batch.

  Returns:
    A list of `count` structures like `tensors`, each of batch / count examples.
  """
  if count < 1:
    raise ValueError(f"count must be at least 1, got {count}")
  if count == 1:
    return [tensors]
  parts = [tf.split(tensor, count) for tensor in tf.nest.flatten(tensors)]
  return [tf.nest.pack_sequence_as(tensors, list(part)) for part in zip(*parts)]


def local_devices(count: int, device_type: str = "CPU") -> List[str]:
  """Returns device strings for the first devices of a task: ["/device:CPU:0", "/device:CPU:1"]."""
  if count < 1:
    raise ValueError(f"a worker has at least one clone, got {count}")
  return ["/device:%s:%d" % (device_type, index) for index in range(count)]


def with_cpu_devices(count: int, config: Optional[tf.ConfigProto] = None) -> tf.ConfigProto:
  """Returns a config that makes so many logical CPU devices.

  Without GPUs, clones run on those. A server fixes the devices of its process when it starts, so
  the config must be the server's; a session on a server takes the server's devices.

  Args:
    count: how many, at least 1.
    config: the config to start from, which is copied; None: an empty one.
  """
  if count < 1:
    raise ValueError(f"a task has at least one CPU device, got {count}")
  result = tf.ConfigProto()
  if config is not None:
    result.CopyFrom(config)
  result.device_count["CPU"] = count
  return result
