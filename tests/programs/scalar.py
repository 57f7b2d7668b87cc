"""One weight w from 0, the loss (w - target)^2 / 2, and the rate 0.5; a target for each worker."""
import os
import threading

import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_string("targets", "1,3", "The target of each worker.")
flags.DEFINE_integer("block_at", -1, "The batch that is not read until --block_until; -1: none.")
flags.DEFINE_string("block_until", "", "A file.")
flags.DEFINE_integer("lose_at", -1, "The step behind which the session is lost; -1: none.")


def input_fn(mode, shard):
  """The worker's target, [1], without end in training."""
  target = float(flags.FLAGS.targets.split(",")[shard.index])
  data = shard.dataset(tf.data.Dataset.from_tensors([target]))
  target = tf.data.make_one_shot_iterator(data).get_next()
  if mode == "train" and flags.FLAGS.block_at >= 0:
    target = tf.ensure_shape(tf.numpy_function(_hold(), [target], tf.float32), [1])
  return target, target


def _hold():
  read = []

  def hold(target):
    read.append(1)
    if len(read) == flags.FLAGS.block_at:
      print("holds batch %d" % len(read), flush=True)
      while not os.path.exists(flags.FLAGS.block_until):
        threading.Event().wait(0.02)
    return target

  return hold


def model_fn(features, labels, mode):
  """The distance to the target."""
  w = tf.get_variable("w", initializer=0.0)
  return tf1ps.ModelSpec(
    loss=tf.reduce_mean(tf.square(w - labels)) / 2,
    optimizer=tf.train.GradientDescentOptimizer(0.5),
    hooks=[_Loser()] if mode == "train" else [])


class _Loser(tf.train.SessionRunHook):
  """Loses the session of this task alone, once."""
  runs = 0

  def after_run(self, run_context, run_values):
    self.runs += 1
    if self.runs == flags.FLAGS.lose_at:
      raise tf.errors.UnavailableError(None, None, "the connection was reset")
