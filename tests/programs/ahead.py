"""A program whose pipeline reads ahead, into a record that takes ten minutes."""
import threading

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps


def input_fn(mode, shard):
  """x in 0 to 1, y = 3 x, of [batch]; in training, the 31st batch of a worker comes late."""
  made = [0]

  def fetch(x):
    made[0] += 1
    if mode == "train" and made[0] == 31:
      print("reads ahead", flush=True)
      threading.Event().wait(600.0)
    return x

  records = tf.data.Dataset.from_tensor_slices(np.arange(400, dtype=np.float32) / 400)
  dataset = shard.dataset(records).batch(shard.batch_size, drop_remainder=True).map(
    lambda x: tf.numpy_function(fetch, [x], tf.float32)).prefetch(1)
  x = tf.data.make_one_shot_iterator(dataset).get_next()
  x.set_shape([shard.batch_size])
  return x, 3 * x


def model_fn(features, labels, mode):
  """y = w x, with its squared error."""
  y = tf.get_variable("w", [], initializer=tf.zeros_initializer()) * features
  return tf1ps.ModelSpec(
    loss=tf.reduce_mean(tf.square(y - labels)), predictions={"y": y},
    metrics={"error": tf.metrics.mean(tf.abs(y - labels))})
