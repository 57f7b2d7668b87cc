"""The models of the benchmarks: the same data, initial values and layers for every system.

| name | model | batch | what bounds the classic script |
|---|---|---|---|
| S | softmax 784x10 | 100 | the round trip |
| M | 784-1024-1024-10, ReLU | 128 | bytes |
| L | 100 layers of 64x64 with biases, tanh | 32 | the number of variables |
| H | 784-100-10, ReLU | 32 | the round trip |
| mnist | 784-100-10, ReLU, on MNIST's files, where `TF1PS_MNIST` names their folder | 100 | |
| V<n> | n layers of 16x16 without biases, tanh; such as V50 | 32 | the number of variables |
| V<n>x<w> | n layers of w x w without biases, tanh; such as V20x128 | 32 | likewise, or bytes |
| E, E_zipf | embedding 1,000,000 x 32, bags of 10 ids, uniform or Zipf | 1024 | the rows |
| narrow | 201 layers of 256x256 with biases, tanh; for a GPU | 64 | the number of variables |
| resnet50, vgg16 | convolutional networks (networks.py); for a GPU | 64 | bytes |

`E_small`, with 1,000 rows, and `resnet_tiny` are for quick tries. The data follows a rule that a
model can learn. It is drawn once, and a seed determines its order. A minibatch is one record of the
dataset, so that reading costs little, and so that every system sees the same minibatches in the
same order. The initial values come from the same seed. A network's images are made in the step, on
the device of the layers; if the network's name ends in `_fed`, the dataset makes them on the CPU.
"""
from __future__ import annotations

import functools
import gzip
import os
import re
from typing import Callable, List, NamedTuple, Tuple, Union

import numpy as np

from benchmarks import networks

POOL = 240  # minibatches that are made; losses are compared after each was used once
_BAG, _WIDTH = 10, 32
_EVAL = 4  # minibatches of held-out data
_IMAGE, _CLASSES = 784, 10
_FED = "_fed"  # the end of a network's name whose images are made by the dataset


class Model(NamedTuple):
  """One model."""

  name: str
  batch: int  # examples in a minibatch
  learning_rate: float  # the learning rate of gradient descent
  layers: Tuple[Tuple[int, int], ...] = ()  # the inputs and outputs of each layer
  biases: bool = True
  rows: int = 0  # the rows of the embedding, if the model has an embedding
  zipf: bool = False  # whether a few ids make up most of a batch
  network: str = ""  # the name of a network of networks.py
  is_fed: bool = False  # whether the dataset makes its images


class Data(NamedTuple):
  """The data that a model trains on, and the held-out data."""

  features: np.ndarray  # [minibatches, batch, ...]
  labels: np.ndarray  # [minibatches, batch, ...]
  eval_features: np.ndarray  # [examples, ...]
  eval_labels: np.ndarray  # [examples, ...]


def get(name: str) -> Model:
  """The model of a name; raises ValueError."""
  if name == "S":
    return Model("S", 100, 0.05, ((_IMAGE, _CLASSES),))
  if name == "M":
    return Model("M", 128, 0.05, ((_IMAGE, 1024), (1024, 1024), (1024, _CLASSES)))
  if name in ("H", "mnist"):
    return Model(name, 32 if name == "H" else 100, 0.05 if name == "H" else 0.2,
                 ((_IMAGE, 100), (100, _CLASSES)))
  if name == "L":
    return Model("L", 32, 0.02, ((64, 64),) * 100)
  if re.match(r"V[1-9]\d*(x[1-9]\d*)?$", name):
    number, width = (name[1:] + "x16").split("x")[:2]
    return Model(name, 32, 0.1, ((int(width), int(width)),) * int(number), biases=False)
  if name in ("E", "E_zipf", "E_small"):
    rows = 1000 if name == "E_small" else 1000000
    rate = {"E": 4.0, "E_zipf": 0.3, "E_small": 1.0}[name]  # rows that come often learn fast
    return Model(name, 1024, rate, ((_WIDTH, 1),), rows=rows, zipf=name == "E_zipf")
  if name == "narrow":
    return Model(name, 64, 0.02, ((256, 256),) * 201)
  network = name[:-len(_FED)] if name.endswith(_FED) else name
  if network in networks.NAMES:
    return Model(name, 8 if network == "resnet_tiny" else 64, 0.01, network=network,
                 is_fed=name.endswith(_FED))
  raise ValueError("there is no model %r: S, M, H, mnist, L, V<n>, V<n>x<w>, E, E_zipf, "
                   "E_small, narrow, %s" % (name, ", ".join(networks.NAMES)))


def timed_pool(model: Model) -> int:
  """Returns the number of minibatches to make if only time counts.

  The minibatches are constants of the graph. TensorFlow keeps copies of these constants, and many
  systems are in memory at the same time, so there are few images. An embedding needs as many ids as
  otherwise, because else all of its rows would stay in the processor's cache.
  """
  return POOL if model.rows or model.network else POOL // 10


@functools.lru_cache(maxsize=1)
def data(model: Model, seed: int = 0, minibatches: int = POOL) -> Data:
  """Makes the data of a model.

  Args:
    model: the model.
    seed: the seed of the examples' order.
    minibatches: the number of minibatches.
  """
  if model.name == "mnist":
    return _mnist(model, seed)
  held_out = model.batch * (1 if model.network else min(_EVAL, minibatches))
  count = minibatches * model.batch
  features, labels = _examples(model, count + held_out)
  order = np.random.RandomState(1000 + seed).permutation(count)

  def batches(values):
    return values[:count][order].reshape((minibatches, model.batch) + values.shape[1:])

  return Data(batches(features), batches(labels), features[count:], labels[count:])


def _mnist(model: Model, seed: int) -> Data:
  """Returns all of MNIST, for any number of minibatches."""
  def read(name, begin):
    path = os.path.join(os.environ["TF1PS_MNIST"], name)
    with (open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz")) as file:
      return np.frombuffer(file.read(), np.uint8, offset=begin)

  names = ("train", "t10k")
  parts = [read(name + "-images-idx3-ubyte", 16).reshape(-1, _IMAGE) for name in names]
  labels = [read(name + "-labels-idx1-ubyte", 8).astype(np.int32) for name in names]
  order = np.random.RandomState(1000 + seed).permutation(len(labels[0]))
  return Data(parts[0][order].reshape(-1, model.batch, _IMAGE),
              labels[0][order].reshape(-1, model.batch), parts[1], labels[1])


def _examples(model: Model, count: int):
  random = np.random.RandomState(1)
  if model.rows:
    if model.zipf:
      ids = (random.zipf(1.2, size=[count, _BAG]) - 1) % model.rows
    else:
      ids = random.randint(model.rows, size=[count, _BAG])
    score = random.normal(size=[model.rows])
    return ids.astype(np.int32), (score[ids].sum(1) > 0).astype(np.float32)
  if model.network:
    brightness = random.uniform(size=[count]).astype(np.float32)
    return brightness, (brightness * networks.get(model.network).classes).astype(np.int32)
  inputs, outputs = model.layers[0][0], model.layers[-1][1]
  rule = random.normal(size=[inputs, outputs]) / np.sqrt(inputs)
  if inputs == _IMAGE:
    images = random.randint(256, size=[count, inputs], dtype=np.uint8)
    scores = [(part / 255.0 - 0.5).dot(rule) for part in np.array_split(images, 64)]
    return images, np.concatenate(scores).argmax(1).astype(np.int32)
  values = random.normal(size=[count, inputs])
  return values.astype(np.float32), np.tanh(values.dot(rule)).astype(np.float32)


def dataset(tf, model: Model, features, labels):
  """Returns a dataset of minibatches from memory, which converts bytes to floats from 0 to 1.

  Args:
    tf: TensorFlow, or its compat.v1.
    model: the model.
    features: [minibatches, batch, ...].
    labels: [minibatches, batch, ...].
  """
  made = tf.data.Dataset.from_tensor_slices((features, labels))
  if features.dtype == np.uint8:
    made = made.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y))
  if model.is_fed:
    edge = networks.get(model.network).image
    made = made.map(lambda x, y: (networks.images(tf, x, edge), y), num_parallel_calls=8)
  return made


def eval_features(made: Data) -> np.ndarray:
  """Returns the held-out features in the form that the model takes."""
  if made.eval_features.dtype == np.uint8:
    return made.eval_features.astype(np.float32) / 255.0
  return made.eval_features


def initial_values(model: Model, seed: int = 0) -> List[Tuple[str, Union[np.ndarray, tuple]]]:
  """Returns the name of each variable and its value, or only its shape if all values are zero.

  A network's variables have a `networks.Normal` instead of values.
  """
  if model.network:
    return networks.initial_values(networks.get(model.network), seed)
  random = np.random.RandomState(2000 + seed)
  made: List[Tuple[str, Union[np.ndarray, tuple]]] = []
  if model.rows:
    made.append(("embedding", (model.rows, _WIDTH)))
  for number, (inputs, outputs) in enumerate(model.layers):
    values = random.normal(size=[inputs, outputs]) / np.sqrt(inputs)
    if inputs == outputs == model.layers[0][0]:  # so that a signal passes through a hundred layers
      values, _ = np.linalg.qr(values)
    made.append(("w%d" % number, values.astype(np.float32)))
    if model.biases:
      made.append(("b%d" % number, (outputs,)))
  return made


def loss(tf, model: Model, features, labels, variables: Callable, look_up: Callable = None):
  """The mean loss of a batch, a scalar.

  Args:
    tf: TensorFlow, or its compat.v1.
    model: the model.
    features: [batch, ...].
    labels: [batch, ...].
    variables: called with a name, returns the variable.
    look_up: called with the table and the ids, returns the sum of each bag, [batch, width]; None:
      `tf.nn.embedding_lookup` and a sum.
  """
  if model.network:
    return _loss_of_network(tf, networks.get(model.network), features, labels, variables)
  values = features
  if model.rows:
    if look_up is None:
      def look_up(table, ids):
        return tf.reduce_sum(tf.nn.embedding_lookup(table, ids), axis=1)
    values = look_up(variables("embedding"), features)
  activation = tf.nn.relu if model.layers[0][0] == _IMAGE else tf.tanh
  for number in range(len(model.layers)):
    values = tf.matmul(values, variables("w%d" % number))
    if model.biases:
      values = values + variables("b%d" % number)
    if number + 1 < len(model.layers):
      values = activation(values)
  if model.rows:
    return tf.reduce_mean(
      tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=tf.squeeze(values, 1)))
  if model.layers[0][0] == _IMAGE:
    return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=values))
  return tf.reduce_mean(tf.square(values - labels))


def _loss_of_network(tf, network, features, labels, variables):
  if len(features.shape) == 1:
    features = networks.images(tf, tf.convert_to_tensor(features), network.image)
  return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=labels, logits=networks.logits(tf, network, features, variables)))


def of_arguments(tf, args):
  """Returns a peer's model, data and variables in the default graph, as its command line asks."""
  model = get(args.model)
  return model, data(model, args.seed, args.minibatches), graph_variables(tf, model, args.seed)


def graph_variables(tf, model: Model, seed: int = 0) -> Callable:
  """Makes a model's variables by `tf.get_variable`; for `loss`.

  Args:
    tf: TensorFlow's compat.v1.
    model: the model.
    seed: the seed of the initial values.

  Returns:
    A function of the name that returns the variable; its first call for a name creates the
    variable.
  """
  values = dict(initial_values(model, seed))

  def variable(name):
    value = values[name]
    if isinstance(value, networks.Normal):
      return tf.get_variable(name, initializer=lambda: value.stddev * tf.random.stateless_normal(
        value.shape, value.seed))
    if isinstance(value, tuple):
      return tf.get_variable(name, value, initializer=tf.zeros_initializer())
    return tf.get_variable(name, initializer=tf.constant(value))  # a tensor can be partitioned

  return variable
