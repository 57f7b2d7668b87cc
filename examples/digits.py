"""Handwritten digits: the program of the quick start.

    tf1ps-local --program=examples/digits.py

The program trains a network with one hidden layer. Its data are the 8x8 digits in data/, or, with
`--data_dir=FOLDER`, MNIST's four IDX files. The program defines a batch and the network. Only flags
decide how many tasks train it, and how.

On a worker, `input_fn` reads the images into memory and makes a dataset of their *row numbers*. The
shard divides the numbers among the workers, and each batch of numbers fetches its rows. So the
arrays (47 MB of MNIST) are no constants of the graph, and shuffling moves only numbers.
"""
from __future__ import annotations

import handwritten_digits
import numpy as np
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

  def fetch(rows):
    return data.images[rows].astype(np.float32) / data.white, data.labels[rows]

  rows = shard.dataset(tf.data.Dataset.range(len(data.labels)), shuffle=len(data.labels))
  batches = rows.batch(shard.batch_size).map(
      lambda rows: tf.numpy_function(fetch, [rows], [tf.float32, tf.int32])).prefetch(1)
  iterator = tf.data.make_initializable_iterator(batches)
  tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
  images, labels = iterator.get_next()
  images.set_shape([None, data.images.shape[1]])
  labels.set_shape([None])
  return images, labels


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
