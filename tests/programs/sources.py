"""The same rows from files, from memory and from a generator; what each gave is a metric."""
import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps
from tf1ps.pipeline import feeding, preloaded, readers

flags.DEFINE_string("rows", None, "A pattern of files, whose lines are the numbers from 0.")
flags.DEFINE_integer("count", None, "How many there are.")


def input_fn(mode, shard):
  count = flags.FLAGS.count
  return {
    "readers": readers.text_line_reader(shard, flags.FLAGS.rows, tf.strings.to_number, shuffle=8),
    "preloaded": preloaded.preloaded_batches(
      training_share(shard), np.arange(count, dtype=np.float32)
    ),
    "feeding": feeding.feed(
      lambda: iter(range(count)), tf.float32, [], shard.batch_size, shard=training_share(shard)
    ),
  }, None


def training_share(shard):
  """A share of its own: rows, as the first one has divided files."""
  return type(shard)(shard.index, shard.count, shard.batch_size, shard.epochs, mode=shard.mode)


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  mean = tf.add_n([tf.reduce_mean(value) for value in features.values()]) / 300.0
  return tf1ps.ModelSpec(
    loss=tf.square(w - mean), predictions={"w": w},
    metrics={name: tf.metrics.mean(value) for name, value in features.items()})
