"""Handwritten digits: the program of the quick start.

    tf1ps-local --program=examples/digits.py --num_ps=2 --num_workers=2

trains a network with one hidden layer on the 8x8 digits that lie in data/, or, with
`--data_dir=FOLDER`, on MNIST's four IDX files. The program says what a batch is and what the
network is; how many tasks train it, and how, is said by flags alone.

What happens on a worker: `input_fn` reads the images into memory and makes a dataset of their
*row numbers*, which the shard divides among the workers; each batch of numbers then fetches its
rows. So the arrays (47 MB of MNIST) are no constants of the graph, and shuffling moves numbers.
"""
from __future__ import annotations

import functools
import gzip
import operator
import os
import struct
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_string("data_dir", None, "Folder with MNIST's four IDX files, plain or .gz. "
                    "Without it: the 8x8 digits that come with the program.")

CSV = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv")
IMAGES, LABELS = 0x803, 0x801  # what an IDX file begins with: bytes in three dimensions, or in one
HIDDEN, DIGITS = 200, 10


class Data(NamedTuple):
  """One part of a data set, in memory."""
  images: np.ndarray  # [rows, pixels], uint8
  labels: np.ndarray  # [rows], int32, 0 to 9
  white: int  # the largest value of a pixel


def read_csv(mode: str) -> Data:
  """Reads the 8x8 digits: the first ten rows of every fifty are for testing, the rest to train."""
  rows = np.loadtxt(CSV, delimiter=",", dtype=np.uint8)
  test = np.arange(len(rows)) % 50 < 10
  part = rows[~test] if mode == "train" else rows[test]
  return Data(part[:, :-1], part[:, -1].astype(np.int32), 16)


def read_idx(data_dir: str, name: str, magic: int) -> np.ndarray:
  """Reads the IDX file `name` or `name.gz`; a ValueError names the file and what is wrong."""
  path = os.path.join(data_dir, name)
  path = path if os.path.exists(path) else path + ".gz"
  if not os.path.exists(path):
    raise ValueError(f"--data_dir={data_dir}: neither {name} nor {name}.gz is there")
  try:
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
      content = file.read()
  except (OSError, EOFError, zlib.error) as error:
    raise ValueError(f"{path} cannot be read: {error}") from error
  dimensions = magic & 0xff
  head = 4 + 4 * dimensions  # bytes: the magic number, then the size of each dimension
  if content[:4] != struct.pack(">I", magic) or len(content) < head:
    raise ValueError(f"{path} must begin with 0x{magic:08x} and {dimensions} sizes; "
                     f"its {len(content)} bytes begin with 0x{content[:4].hex()}")
  shape = struct.unpack(f">{dimensions}I", content[4:head])
  size = functools.reduce(operator.mul, shape)
  if len(content) - head != size:
    raise ValueError(f"{path} promises {size} bytes, of shape {shape}, "
                     f"and holds {len(content) - head}")
  return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def read_mnist(mode: str, data_dir: str) -> Data:
  """Reads MNIST's training files for mode "train", its test files for the others."""
  part = "train" if mode == "train" else "t10k"
  images = read_idx(data_dir, part + "-images-idx3-ubyte", IMAGES)
  labels = read_idx(data_dir, part + "-labels-idx1-ubyte", LABELS)
  if len(images) != len(labels):
    raise ValueError(f"--data_dir={data_dir}: {len(images)} images, {len(labels)} labels in {part}")
  return Data(images.reshape(len(images), -1), labels.astype(np.int32), 255)


def input_fn(mode, shard):
  """Returns images of [batch, pixels] in 0 to 1, and their digits of [batch]."""
  data_dir = flags.FLAGS.data_dir
  data = read_mnist(mode, data_dir) if data_dir else read_csv(mode)

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
