"""The client program of the search: trains one network, on one task of a cluster, in one container.

    python examples/exercises/one_network.py --server=grpc://127.0.0.1:2221 \
        --device=/job:worker/task:0 --container=network-0 --hidden=32 --rate=0.1

hyper_parameter_search.py runs it once for each set of hyper-parameters. The program ends, and the
network stays in its place, because variables belong to the server. ensemble_of_three.py uses the
networks there, and takes the data and the network from this file.

It prints one line of JSON: the place, the hyper-parameters, and how good the network is on the
validation set.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.state import container_scope

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_string("server", None, "To connect to: grpc://HOST:PORT.")
flags.DEFINE_string("device", None, "Where the network lives and is computed.")
flags.DEFINE_string("container", None, "Of its variables, and their name scope.")
flags.DEFINE_integer("hidden", 32, "Units of the hidden layer.")
flags.DEFINE_float("rate", 0.1, "Of learning.")
flags.DEFINE_integer("steps", 300, "Of training.")
flags.DEFINE_integer("seed", 0, "Of the network and its data.")
FLAGS = flags.FLAGS

BATCH = 5


def read_digits():
  """Returns the digits to train with, those to choose by, and those to test with in the end."""
  return [handwritten_digits.scale(handwritten_digits.read_csv(places))
          for places in (range(30, 50), range(20, 30), range(20))]


def network(images, hidden, seed=0):
  """One hidden layer: logits [batch, 10] of images [batch, 64]."""
  zeros, values = tf.zeros_initializer(), tf.glorot_uniform_initializer(seed)

  def layer(name, inputs, units):
    weights = tf.get_variable(name + "_weights", [int(inputs.shape[1]), units], None, values)
    return tf.matmul(inputs, weights) + tf.get_variable(name + "_biases", [units], None, zeros)

  return layer("logits", tf.nn.relu(layer("hidden", images, hidden)), 10)


def right(probabilities, digits):
  """How many digits get the highest probability."""
  return int((np.argmax(probabilities, 1) == digits.labels).sum())


def main(_):
  """Builds the network in its place, trains it there, and tells how good it is."""
  tf.disable_v2_behavior()
  train, validate, _ = read_digits()
  with container_scope(FLAGS.container), tf.device(FLAGS.device), \
      tf.variable_scope(FLAGS.container):
    images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    logits = network(images, FLAGS.hidden, FLAGS.seed)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = tf.train.GradientDescentOptimizer(FLAGS.rate).minimize(loss)
    probabilities = tf.nn.softmax(logits)
    initialize = tf.global_variables_initializer()
  random = np.random.RandomState(FLAGS.seed)
  # A quarter of the training set, another one for each network: so they will not all err alike.
  own = random.permutation(len(train.labels))[::4]
  with tf.Session(FLAGS.server, config=tf.ConfigProto(operation_timeout_in_ms=60000)) as session:
    session.run(initialize)
    for _ in range(FLAGS.steps):
      rows = random.choice(own, BATCH)
      session.run(train_op, {images: train.images[rows], labels: train.labels[rows]})
    loss, probabilities = session.run(
      [loss, probabilities], {images: validate.images, labels: validate.labels})
  print(json.dumps({
    "container": FLAGS.container, "device": FLAGS.device, "hidden": FLAGS.hidden,
    "rate": FLAGS.rate, "right": right(probabilities, validate), "loss": float(loss)}))


if __name__ == "__main__":
  # Not above: the programs that import this file do not need these flags.
  flags.mark_flags_as_required(["server", "device", "container"])
  app.run(main)
