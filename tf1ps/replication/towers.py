"""Towers: several copies of a model in a graph, on several devices, with shared variables.

For each device, in order:

1. `tower_fn(index)` builds the forward pass there. The first tower creates the variables; the
   others find the same variables (`tf.get_variable` with `reuse=True`).
2. The gradients of the tower's loss are computed there too.
3. Variables are not on the tower's device: `variables_device` places them, or the scope around
   `build_towers`, such as the scope of a `replica_device_setter`.

The first tower has the names of a model without towers, for checkpoints; the operations of the
other towers have the prefixes `tower_1/`, `tower_2/` and so on.

A tower sees only its own part of the collections LOSSES, UPDATE_OPS and SUMMARIES, so that
`tf.losses.get_total_loss()` is right in each tower. Afterwards the collections hold the items of
the first tower. So only the first tower updates the moving averages of batch normalisation, as in
TF-Slim. Otherwise each tower would update the same variables.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, NamedTuple, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.placement import DEFAULT_PS_OPS
from tf1ps.replication import gradients as gradients_lib

Device = Union[None, str, Callable]  # the types of tf.device's argument

_OWN_COLLECTIONS = (tf.GraphKeys.LOSSES, tf.GraphKeys.UPDATE_OPS, tf.GraphKeys.SUMMARIES)


class Tower(NamedTuple):
  """A tower."""

  index: int  # from 0
  device: str  # the device that computes it
  loss: tf.Tensor  # [], of this tower's part of the batch
  grads_and_vars: gradients_lib.GradsAndVars  # of that loss, for the shared variables
  update_ops: List[tf.Operation]  # its items of UPDATE_OPS


def build_towers(tower_fn: Callable[[int], tf.Tensor], devices: Sequence[str],
                 optimizer: tf.train.Optimizer, variables_device: Device = None) -> List[Tower]:
  """Builds a tower on each device; returns the towers, in the order of the devices.

  Args:
    tower_fn: called with the tower's index, from 0; returns its loss, a scalar. Makes its
      variables by `tf.get_variable`, directly or by layers, under the same names in each tower.
    devices: device strings, such as "/job:worker/task:0/device:CPU:0" or "/device:GPU:1"; they may
      be equal.
    optimizer: the optimizer whose `compute_gradients` is called.
    variables_device: the place of the variables: a device string, or a device function such as a
      `replica_device_setter`. None: the scope around the call decides.

  Raises:
    ValueError: there is no device, a loss is not a scalar, no variable can be trained, or a tower
      after the first made a trainable variable of its own.
  """
  devices = check_devices(devices)
  trainable = tf.get_collection_ref(tf.GraphKeys.TRAINABLE_VARIABLES)
  towers = []
  for index, device in enumerate(devices):
    known = len(trainable)
    with own_collections(keep=index == 0), tf.device(_placing(device, variables_device)), \
        tf.variable_scope(tf.get_variable_scope(), reuse=True if index else None), \
        (tf.name_scope("tower_%d" % index) if index else contextlib.nullcontext()):
      loss = checked_loss(tower_fn(index), index)
      if index and trainable[known:]:
        raise ValueError(
          f"tower {index} made variables of its own, which tower 0 does not have: "
          f"{[variable.name for variable in trainable[known:]]}; make them by tf.get_variable, "
          "with the same names in each tower, so that the towers share them")
      grads_and_vars = optimizer.compute_gradients(loss)
      update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    towers.append(Tower(index, device, loss, grads_and_vars, update_ops))
  return towers


@contextlib.contextmanager
def own_collections(keep: bool):
  """Empties the collections of losses, updates and summaries inside of the context.

  With `keep`, the items that the context adds stay afterwards, behind the earlier items.
  """
  references = [tf.get_collection_ref(key) for key in _OWN_COLLECTIONS]
  before = [list(reference) for reference in references]
  for reference in references:
    del reference[:]
  try:
    yield
  finally:
    for reference, old in zip(references, before):
      reference[:] = old + (reference if keep else [])


def check_devices(devices: Sequence[str]) -> List[str]:
  """Returns the devices as a list; raises ValueError unless they are device strings."""
  if isinstance(devices, str):
    raise ValueError(f"devices must be a list of device strings, got the string {devices!r}")
  devices = list(devices)
  if not devices:
    raise ValueError("there must be at least one device, got none")
  for device in devices:
    try:
      tf.DeviceSpec.from_string(device if isinstance(device, str) else "no string")
    except ValueError:
      raise ValueError(f"{device!r} is not a device string such as "
                       '"/job:worker/task:0/device:CPU:0"') from None
  return devices


def checked_loss(loss: tf.Tensor, index: int) -> tf.Tensor:
  """Returns a tower's loss; raises ValueError if it is not a scalar of a floating type."""
  loss = tf.convert_to_tensor(loss)
  if not loss.shape.is_compatible_with([]) or not loss.dtype.is_floating:
    raise ValueError(f"tower_fn must return the loss, a scalar of a floating type; tower {index}'s "
                     f"is {loss.dtype.name} with the shape {loss.shape}")
  loss.set_shape([])
  return loss


def _placing(device, variables_device):
  """Returns a device function: variables on `variables_device`, all else on the tower's device."""
  tower = tf.DeviceSpec.from_string(device)

  def place(op):
    here = tf.DeviceSpec.from_string(op.device or "")
    if op.type not in DEFAULT_PS_OPS:
      return tower.make_merged_spec(here).to_string()
    if callable(variables_device):
      return variables_device(op)
    return tf.DeviceSpec.from_string(variables_device or "").make_merged_spec(here).to_string()

  return place
