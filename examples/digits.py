"""Handwritten digits: the program of the quick start.

    tf1ps-local --program=examples/digits.py

The program trains a network with one hidden layer. Its data are the 8x8 digits in data/, or, with
`--data_dir=FOLDER`, MNIST's four IDX files. The program defines a batch and the network. Only flags
decide how many tasks train it, and how.

On a worker, `input_fn` loads the images into a variable and makes a dataset of their *row numbers*.
The shard divides the numbers among the workers, and each batch of numbers gathers its rows. So the
images (47 MB of MNIST) are no constants of the graph, shuffling moves only numbers, and the
position of the input, which a worker that is started again goes on from, is small.
"""
from __future__ import annotations

import handwritten_digits
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_string("data_dir", None, "Folder with MNIST's four IDX files, plain or .gz. "
                    "Without it: the 8x8 digits that come with the program.")

FLAGS = {"epochs": 30, "learning_rate": 0.01}  # unless the command line says otherwise
HIDDEN, DIGITS = 200, 10


def input_fn(mode, shard):
  """Returns images of [batch, pixels] in 0 to 1, and their digits of [batch]."""
  data = handwritten_digits.read(mode, flags.FLAGS.data_dir)
  numbers = shard.dataset(tf.data.Dataset.range(len(data.labels)), shuffle=len(data.labels))
  iterator = tf.data.make_initializable_iterator(numbers.batch(shard.batch_size).prefetch(1))
  tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
  rows = iterator.get_next()
  images, labels = [load(array, rows.device) for array in (data.images, data.labels)]
  return tf.cast(tf.gather(images, rows), tf.float32) / data.white, tf.gather(labels, rows)


def load(array, device):
  """Returns the value of a variable that holds an array, and does not belong to the model.

  It is in no collection, so nothing saves or trains it. Each session loads it, with its tables.
  """
  # A device setter would place it on a ps, and a reset of the job's container would clear it.
  with tf.device(device), tf.container(""):
    value = tf.py_func(lambda: array, [], array.dtype)
    value.set_shape(array.shape)
    variable = tf.Variable(value, trainable=False, collections=[], use_resource=True)
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, variable.initializer)
    return variable.read_value()


def dense(name, inputs, units):
  """A fully connected layer: inputs x weights + biases, of shape [batch, units]."""
  with tf.variable_scope(name):
    weights = tf.get_variable("weights", [int(inputs.shape[1]), units])  # Glorot's uniform values
    biases = tf.get_variable("biases", [units], initializer=tf.zeros_initializer())
    return tf.matmul(inputs, weights) + biases


def model_fn(features, labels, mode):
  """The network 64-200-10 (784-200-10 for MNIST), its loss, its predictions and its accuracy."""
  hidden = tf.nn.relu(dense("hidden", features, HIDDEN))
  logits = dense("logits", hidden, DIGITS)
  digit = tf.argmax(logits, axis=1, output_type=tf.int32)
  predictions = {"digit": digit, "probability": tf.reduce_max(tf.nn.softmax(logits), axis=1)}
  if mode == "predict":  # there may be no labels
    return tf1ps.ModelSpec(predictions=predictions)
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  metrics = {"accuracy": tf.metrics.accuracy(labels, digit)}
  return tf1ps.ModelSpec(loss=loss, predictions=predictions, metrics=metrics)
