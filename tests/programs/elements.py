"""A program whose input_fn returns a dataset, or makes an iterator of several pipelines."""
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_boolean("structured", False, "The iterator is that of one of several pipelines.")

FLAGS = flags.FLAGS


def input_fn(mode, shard):
  """The numbers 0 to 39."""
  dataset = shard.dataset(tf.data.Dataset.range(40)).batch(shard.batch_size)
  pairs = dataset.map(lambda x: ({"x": tf.cast(x, tf.float32)}, tf.cast(x, tf.float32)))
  if not FLAGS.structured:
    return pairs
  iterator = tf.data.Iterator.from_structure(
    tf.data.get_output_types(pairs), tf.data.get_output_shapes(pairs))
  iterator.make_initializer(pairs)
  iterator.make_initializer(pairs.take(0))
  return iterator.get_next()


def model_fn(features, labels, mode):
  """y = w x."""
  y = tf.get_variable("w", [], initializer=tf.zeros_initializer()) * features["x"]
  return tf1ps.ModelSpec(
    loss=1e-3 * tf.reduce_mean(tf.square(y - labels)), predictions={"y": y},
    metrics={"label": tf.metrics.mean(labels)})
