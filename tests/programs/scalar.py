"""One weight w from 0, the loss (w - target)^2 / 2, and the rate 0.5; a target for each worker."""
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_string("targets", "1,3", "The target of each worker.")


def input_fn(mode, shard):
  """The worker's target, [1], without end in training."""
  target = float(flags.FLAGS.targets.split(",")[shard.index])
  data = shard.dataset(tf.data.Dataset.from_tensors([target]))
  target = tf.data.make_one_shot_iterator(data).get_next()
  return target, target


def model_fn(features, labels, mode):
  """The distance to the target."""
  w = tf.get_variable("w", initializer=0.0)
  return tf1ps.ModelSpec(
    loss=tf.reduce_mean(tf.square(w - labels)) / 2,
    optimizer=tf.train.GradientDescentOptimizer(0.5))
