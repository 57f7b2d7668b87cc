"""Convolutional networks as tables of layers, and the images that the networks are trained on.

| name | network | image | parameters |
|---|---|---|---|
| resnet50 | He et al., "Deep residual learning" (arXiv:1512.03385), table 1 | 224 | 25.6 million |
| vgg16 | Simonyan and Zisserman (arXiv:1409.1556), configuration D | 224 | 138 million |
| resnet_tiny | a residual network of four blocks, for quick tries | 32 | 9 thousand |

Images are large, and constants travel with their graph. So a dataset holds only the brightness of
each image, and the image is made from the brightness and noise. The label is the class of the
brightness.
"""
from __future__ import annotations

import math
from typing import Callable, List, NamedTuple, Sequence, Tuple, Union


class Normal(NamedTuple):
  """Initial values that TensorFlow draws on the variable's device."""

  shape: Tuple[int, ...]
  stddev: float
  seed: Tuple[int, int]


class Convolution(NamedTuple):
  """A convolution, followed by a batch norm or a bias."""

  name: str
  size: int  # the length of the kernel's edge
  inputs: int
  outputs: int
  stride: int = 1
  is_normed: bool = True  # whether a batch norm follows; else a bias follows


class Dense(NamedTuple):
  """A matrix and a bias."""

  name: str
  inputs: int
  outputs: int


class Network(NamedTuple):
  """A network by its layers; `call` orders them."""

  layers: Sequence[Union[Convolution, Dense]]
  call: Callable  # called with TensorFlow, images and `apply(name, values)`; returns logits
  image: int  # pixels of an edge
  classes: int


def get(name: str) -> Network:
  """Returns the network of a name; raises KeyError."""
  return _NETWORKS[name]()


def initial_values(network: Network, seed: int) -> List[Tuple[str, object]]:
  """Returns (name, value) for each variable; the value is a `Normal`, or a shape for all zeros.

  The variable of a batch norm's scale is the scale's difference from 1.
  """
  made: List[Tuple[str, object]] = []
  for number, layer in enumerate(network.layers):
    inputs = layer.inputs * getattr(layer, "size", 1) ** 2
    shape: Tuple[int, ...] = (layer.inputs, layer.outputs)
    if isinstance(layer, Convolution):
      shape = (layer.size, layer.size) + shape
    made.append((layer.name + "_w", Normal(shape, math.sqrt(2 / inputs), (seed, number))))
    if getattr(layer, "is_normed", False):
      made.append((layer.name + "_scale", (layer.outputs,)))
    made.append((layer.name + "_b", (layer.outputs,)))
  return made


def images(tf, brightness, edge: int):
  """Makes a batch of images, float32 [batch, edge, edge, 3], on the caller's device.

  Args:
    tf: TensorFlow's compat.v1.
    brightness: float32 [batch], from 0 to 1; the same values give the same images.
    edge: pixels of an edge.
  """
  batch = tf.shape(brightness)[0]
  noise = tf.random.stateless_uniform(
    [batch, edge, edge, 3], seed=[7, tf.cast(brightness[0] * 2 ** 24, tf.int32)])
  return noise + tf.reshape(brightness, [-1, 1, 1, 1]) - 1.0


def logits(tf, network: Network, values, variables: Callable):
  """Returns the logits of images, [batch, classes].

  Args:
    tf: TensorFlow's compat.v1.
    network: the network.
    values: the images.
    variables: called with a name, returns the variable.
  """
  layers = {layer.name: layer for layer in network.layers}

  def apply(name, inputs):
    layer = layers[name]
    if isinstance(layer, Dense):
      return tf.matmul(inputs, variables(name + "_w")) + variables(name + "_b")
    made = tf.nn.conv2d(inputs, variables(name + "_w"), strides=[1, layer.stride, layer.stride, 1],
                        padding="SAME")
    if not layer.is_normed:
      return made + variables(name + "_b")
    return tf.nn.fused_batch_norm(
      made, 1.0 + variables(name + "_scale"), variables(name + "_b"), epsilon=1e-5)[0]

  return network.call(tf, values, apply)


def _resnet(blocks: Sequence[int], width: int, image: int, classes: int) -> Network:
  """A residual network of bottlenecks, in stages of `blocks` blocks each."""
  layers: List[Union[Convolution, Dense]] = [Convolution("stem", 7, 3, width, 2)]
  inputs = width
  for stage, count in enumerate(blocks):
    inner = width * 2 ** stage
    for block in range(count):
      name = "s%d_%d_" % (stage, block)
      stride = 2 if stage and block == 0 else 1
      if block == 0:
        layers.append(Convolution(name + "short", 1, inputs, 4 * inner, stride))
      layers += [Convolution(name + "a", 1, inputs, inner, stride),
                 Convolution(name + "b", 3, inner, inner),
                 Convolution(name + "c", 1, inner, 4 * inner)]
      inputs = 4 * inner
  layers.append(Dense("out", inputs, classes))

  def call(tf, values, apply):
    values = tf.nn.relu(apply("stem", values))
    values = tf.nn.max_pool2d(values, 3, 2, "SAME")
    for stage, count in enumerate(blocks):
      for block in range(count):
        name = "s%d_%d_" % (stage, block)
        short = values if block else apply(name + "short", values)
        for part in "ab":
          values = tf.nn.relu(apply(name + part, values))
        values = tf.nn.relu(short + apply(name + "c", values))
    return apply("out", tf.reduce_mean(values, [1, 2]))

  return Network(layers, call, image, classes)


def _vgg() -> Network:
  """VGG-16."""
  stages = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
  layers: List[Union[Convolution, Dense]] = []
  inputs = 3
  for stage, (count, outputs) in enumerate(stages):
    for number in range(count):
      layers.append(Convolution("c%d_%d" % (stage, number), 3, inputs, outputs, is_normed=False))
      inputs = outputs
  layers += [Dense("d0", 7 * 7 * 512, 4096), Dense("d1", 4096, 4096), Dense("out", 4096, 1000)]

  def call(tf, values, apply):
    for stage, (count, _) in enumerate(stages):
      for number in range(count):
        values = tf.nn.relu(apply("c%d_%d" % (stage, number), values))
      values = tf.nn.max_pool2d(values, 2, 2, "SAME")
    values = tf.reshape(values, [-1, 7 * 7 * 512])
    for name in ("d0", "d1"):
      values = tf.nn.relu(apply(name, values))
    return apply("out", values)

  return Network(layers, call, 224, 1000)


_NETWORKS = {
  "resnet50": lambda: _resnet((3, 4, 6, 3), 64, 224, 1000),
  "vgg16": _vgg,
  "resnet_tiny": lambda: _resnet((1, 1, 1, 1), 4, 32, 10)}
NAMES = tuple(_NETWORKS)
