"""A program that prints the first record of each batch that it trains on; slow, so that it can be
stopped in the middle. Its position is stored at almost every step."""
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps
from tf1ps.checkpoint import input_positions

flags.DEFINE_float("step_seconds", 0.02, "How long a step takes, at least.")

FLAGS = flags.FLAGS

input_positions.TIMING = input_positions.TIMING._replace(position_interval=0.05)
input_positions._PART = 0.5


def input_fn(mode, shard):
  """Numbers from 0."""
  dataset = shard.dataset(tf.data.Dataset.range(3000 if mode == "train" else 8))
  batches = dataset.batch(shard.batch_size)
  return batches.map(lambda x: (tf.reshape(x, [-1]), tf.cast(x, tf.float32)))


def model_fn(features, labels, mode):
  """A variable that stays 0."""
  if mode == "train":
    features = tf.numpy_function(_say, [features], tf.int64)
  zero = tf.get_variable("zero", [], initializer=tf.zeros_initializer())
  y = zero * tf.cast(tf.reshape(features, [-1]), tf.float32)
  return tf1ps.ModelSpec(loss=tf.reduce_mean(tf.square(y)), predictions={"y": y},
                            metrics={"label": tf.metrics.mean(labels)})


def _say(features):
  print("saw %d" % features[0], flush=True)
  threading.Event().wait(FLAGS.step_seconds)
  return np.asarray(features)
