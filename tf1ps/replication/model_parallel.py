"""One model over several devices: a layer on each, or the columns of a layer on each.

  layers_on_devices   layer k on device k: the outputs of the layers travel
  split_dense         a fully connected layer with its columns divided over devices: its inputs
                      travel to each device, its outputs to one
  recurrent.py        recurrent layers, one on each device, which work at the same time

Variables live with their layer, or part. The backward pass only stays there if you ask for it:

    optimizer.minimize(loss, colocate_gradients_with_ops=True)
    tf.gradients(loss, variables, colocate_gradients_with_ops=True)

Without that, TensorFlow computes all gradients on one device, and fetches their inputs there.
split_cost.py measures whether a split is worth it.
"""

from __future__ import annotations

import re
from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

_PART = re.compile(r"/part_(\d+)(?:/|$)")  # in the names of a partitioned variable's operations


def layers_on_devices(inputs: tf.Tensor, layers: Sequence[Callable], devices: Sequence[str]):
  """Builds layers one after the other, each on its own device.

  Args:
    inputs: of the first layer.
    layers: each takes the output of the previous layer and returns its own; it makes its variables
      by `tf.get_variable`, and they live on its device.
    devices: a device for each layer: "/cpu:1", "/job:worker/task:2". A device may have several.

  Returns:
    The output of the last layer.

  Raises:
    ValueError: no layers, or another number of devices.
  """
  if not layers or len(layers) != len(devices):
    raise ValueError("each layer needs a device: got %d layers and %d devices" % (
      len(layers), len(devices)))
  outputs = inputs
  for layer, device in zip(layers, devices):
    with tf.device(device):
      outputs = layer(outputs)
  return outputs


class SplitDense(NamedTuple):
  """A fully connected layer whose columns are divided over devices."""

  outputs: tf.Tensor  # [batch, units]
  parts: List[tf.Tensor]  # the outputs of each device, [batch, its columns]
  weights: List[tf.Variable]  # [depth, its columns] each
  biases: List[tf.Variable]  # [its columns] each


def columns(units: int, parts: int) -> List[int]:
  """The number of columns of each part, as equal as possible; the first parts have one more."""
  if not 1 <= parts <= units:
    raise ValueError("a layer of %d units cannot be divided over %d devices" % (units, parts))
  return [units // parts + (part < units % parts) for part in range(parts)]


def split_dense(inputs: tf.Tensor, units: int, devices: Sequence[str],
                activation: Optional[Callable] = None, name: str = "dense",
                weights_initializer=None, biases_initializer=None) -> SplitDense:
  """Builds activation(inputs x weights + biases), with the columns of each divided over devices.

  The variables are those of one layer, partitioned: part k of two or more is
  `<name>/weights/part_k`, `[depth, columns(units, parts)[k]]`, and `<name>/biases/part_k`. A
  checkpoint holds `<name>/weights`, `[depth, units]`, and `<name>/biases`, whole: it can be
  restored into any number of parts, also into the plain variables of an unsplit layer. An
  initializer with a seed of its own gives all parts the same numbers; a graph's seed does not.

  Args:
    inputs: `[batch, depth]`, of a known depth.
    units: columns of the whole layer.
    devices: a device for each part.
    activation: such as `tf.nn.relu`; each part applies it to its own columns, so that it must treat
      each element by itself (a softmax does not).
    name: of the layer's variable scope.
    weights_initializer: None: the variable scope's, Glorot's uniform values.
    biases_initializer: None: zeros.

  Returns:
    A `SplitDense`; its outputs are put together on the device that is in force around the call.

  Raises:
    ValueError: inputs of an unknown depth, or more devices than units.
  """
  depth = inputs.shape.with_rank(2)[1]
  depth = getattr(depth, "value", depth)  # TensorFlow 1 wraps it
  if depth is None:
    raise ValueError("the inputs of %r must have a known depth, got the shape %s" % (
      name, inputs.shape))
  count = len(devices)
  columns(units, count)
  with tf.variable_scope(name):
    with tf.device(_place_parts(devices)):
      weights = list(tf.get_variable(
        "weights", [depth, units], tf.float32, weights_initializer,
        partitioner=lambda **unused: [1, count]))
      biases = list(tf.get_variable(
        "biases", [units], tf.float32, biases_initializer or tf.zeros_initializer(),
        partitioner=lambda **unused: [count]))
    parts = []
    for device, some_weights, some_biases in zip(devices, weights, biases):
      with tf.device(device):
        part = tf.matmul(inputs, some_weights) + some_biases
        parts.append(part if activation is None else activation(part))
    return SplitDense(tf.concat(parts, 1, name="outputs"), parts, weights, biases)


def _place_parts(devices):
  """A device function that knows the parts of a partitioned variable by their names."""
  devices = [tf.DeviceSpec.from_string(device).to_string() for device in devices]

  def place(op):
    part = _PART.search(op.name)
    return devices[int(part.group(1))] if part else op.device

  return place
