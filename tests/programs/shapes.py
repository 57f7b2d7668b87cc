"""A program that fits y = 3 x + 2 with `--width` copies of w: a shape of each job's own."""
import os
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_integer("width", 1, "How many copies of w there are.")
flags.DEFINE_float("step_seconds", 0.0, "How long a step takes, at least.")
flags.DEFINE_integer("block_at", -1, "The step of each worker that ends with `block_until`.")
flags.DEFINE_string("block_until", "", "The file that ends it.")

FLAGS = flags.FLAGS


def input_fn(mode, shard):
  """x in 0 to 1, y = 3 x + 2, of [batch]."""
  x = np.arange(400, dtype=np.float32) / 400
  dataset = shard.dataset(tf.data.Dataset.from_tensor_slices((x, 3 * x + 2)), shuffle=400)
  features, labels = tf.data.make_one_shot_iterator(dataset.batch(shard.batch_size)).get_next()
  if mode == "train":
    shape = features.shape
    features = tf.numpy_function(_Hold(), [features], tf.float32)
    features.set_shape(shape)
  return features, labels


class _Hold:
  """Takes the time of a step."""

  def __init__(self):
    self._steps = 0

  def __call__(self, x):
    self._steps += 1
    until = time.monotonic() + 60.0
    while (self._steps == FLAGS.block_at and not os.path.exists(FLAGS.block_until)
           and time.monotonic() < until):
      threading.Event().wait(0.02)
    threading.Event().wait(FLAGS.step_seconds)
    return x


def model_fn(features, labels, mode):
  """y = sum(w) x + b, with its squared error."""
  w = tf.get_variable("w", [FLAGS.width], initializer=tf.zeros_initializer())
  b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
  y = tf.reduce_sum(w) * features + b
  loss = tf.reduce_mean(tf.square(y - labels))
  return tf1ps.ModelSpec(
    loss=loss, predictions={"y": y}, metrics={"error": tf.metrics.mean(tf.abs(y - labels))})
