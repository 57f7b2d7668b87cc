"""In-graph replication: a client builds a graph with a tower on each worker task, and runs it.

The workers are servers that wait for work, and the variables live on the ps. Synchronous:

1. Every tower computes the gradients of its part of the batch, on its worker.
2. Each variable's gradients travel to the variable's device, which takes their mean.
3. An optimizer applies the means and raises the global step by 1, for n batches.

Asynchronous, for each replica alone, in a thread of the client (replica_threads.py):

1. The tower computes its gradients from the present variables.
2. The replica's own train op applies the gradients, and raises the global step by 1: n replicas
   that make 100 steps each raise the global step by n times 100.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.replication import gradients, towers
from tf1ps.transfer import apply_and_count, pack_gradients


class InGraph(NamedTuple):
  """A synchronous in-graph model."""

  train_op: tf.Operation  # makes an update from all towers, and raises the global step
  loss: tf.Tensor  # [], the mean over the towers
  grads_and_vars: gradients.GradsAndVars  # the applied means, clipped with `clip_norm`
  towers: List[towers.Tower]  # in the order of the devices


class AsyncReplica(NamedTuple):
  """A replica of an asynchronous in-graph model."""

  train_op: tf.Operation  # makes an update from this replica, and raises the global step
  loss: tf.Tensor  # [], of this replica's batch
  optimizer: tf.train.Optimizer  # of this replica, or of all replicas
  tower: towers.Tower  # with its index and its device


def build_in_graph_synchronous(tower_fn: Callable[[int], tf.Tensor], devices: Sequence[str],
                               optimizer: tf.train.Optimizer,
                               global_step: Optional[tf.Variable] = None,
                               clip_norm: Optional[float] = None,
                               variables_device: towers.Device = None, pack_bytes: int = 0,
                               wire_dtype: str = "float32") -> InGraph:
  """Builds towers, and a single update from all their gradients; returns an `InGraph`.

  Args:
    tower_fn: called with the tower's index; returns the mean loss over its part of the batch, [].
      The parts should be equally large, because each tower has the same weight.
    devices: device strings of the towers, such as "/job:worker/task:1".
    optimizer: applies the mean gradients.
    global_step: the global step; None: the graph's global step, which is created if it is missing.
    clip_norm: if given, the mean gradients are clipped to this global norm.
    variables_device: the place of the variables: a device string or a device function; None: the
      scope around the call decides.
    pack_bytes: gradients of variables below this size travel together; 0: each travels alone.
    wire_dtype: the type of float32 gradients on the wire, a name in `WIRE_DTYPES`.

  Raises:
    ValueError: as `towers.build_towers`; or `clip_norm` is not above 0.
  """
  global_step = _step(global_step, variables_device)
  built = towers.build_towers(tower_fn, devices, optimizer, variables_device)
  sent = [pack_gradients(tower.grads_and_vars, pack_bytes, wire_dtype) for tower in built]
  reduced = gradients.reduce_gradients(sent, beside_variables=True)
  if clip_norm is not None:
    reduced = gradients.clip_gradients(reduced, clip_norm)
  with _around(variables_device), tf.control_dependencies(built[0].update_ops):
    train_op = apply_and_count(optimizer, reduced, global_step)
  loss = gradients.mean_loss([tower.loss for tower in built])
  return InGraph(train_op, loss, reduced, built)


def build_in_graph_asynchronous(tower_fn: Callable[[int], tf.Tensor], devices: Sequence[str],
                                make_optimizer: Callable[[], tf.train.Optimizer],
                                global_step: Optional[tf.Variable] = None,
                                clip_norm: Optional[float] = None,
                                variables_device: towers.Device = None, pack_bytes: int = 0,
                                wire_dtype: str = "float32") -> List[AsyncReplica]:
  """Builds replicas, each with its own update of the shared variables, in the order of the devices.

  Each optimizer object has its own slots. `make_optimizer` is called once for each replica. If it
  makes an object per call, each replica has its own momentum. If it returns the same object, all
  replicas share a momentum, as in between-graph replication, and the checkpoint has one set of
  slots for any number of replicas. Simultaneous updates of a variable may overwrite each
  other, unless the optimizer has `use_locking=True`. The other arguments and the errors are those
  of `build_in_graph_synchronous`, for each replica.
  """
  global_step = _step(global_step, variables_device)
  optimizers = [make_optimizer() for _ in towers.check_devices(devices)]
  built = towers.build_towers(tower_fn, devices, optimizers[0], variables_device)
  replicas = []
  for tower, optimizer in zip(built, optimizers):
    own = tower.grads_and_vars
    if clip_norm is not None:
      with tf.device(tower.device):
        own = gradients.clip_gradients(own, clip_norm)
    own = pack_gradients(own, pack_bytes, wire_dtype)
    with _around(variables_device):
      # Batch normalisation's moving averages follow the first replica.
      with tf.control_dependencies(built[0].update_ops if tower.index == 0 else []):
        applied = optimizer.apply_gradients(own)
      # apply_gradients does not count here: without a lock, two threads may together raise a ref
      # variable by only 1.
      with tf.control_dependencies([applied]), tf.colocate_with(global_step.op):
        train_op = tf.assign_add(global_step, 1, use_locking=True).op
    replicas.append(AsyncReplica(train_op, tower.loss, optimizer, tower))
  return replicas


def _step(global_step, variables_device):
  """Returns the global step; creates it beside the variables if it does not exist."""
  if global_step is not None:
    return global_step
  with _around(variables_device):
    return tf.train.get_or_create_global_step()


def _around(variables_device):
  """Returns the scope of slots and updates, which follow their variables by colocation."""
  return contextlib.nullcontext() if variables_device is None else tf.device(variables_device)
