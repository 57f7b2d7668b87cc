"""A program whose workers have different amounts of data, and an optimizer that can die at work."""
import os
import signal
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_string("batches", "100,70,40", "How many batches each worker has.")
flags.DEFINE_integer("last", -1, "The worker that comes last to most turns; -1: none.")
flags.DEFINE_integer("die_at", -1, "The global step in whose update the maker dies; -1: never.")
flags.DEFINE_boolean("one_shot", True, "Uses a one-shot iterator, which cannot begin again.")
flags.DEFINE_string("died", "", "The file that is then there; whoever sees it does not die.")

FLAGS = flags.FLAGS


def input_fn(mode, shard):
  """Batches of ones, in training as many as this worker has; the labels are the worker's index."""
  batches = [int(count) for count in FLAGS.batches.split(",")]
  count = batches[shard.index] if mode == "train" else 1
  data = tf.data.Dataset.from_tensors(np.ones([shard.batch_size], np.float32)).repeat(count)
  make = tf.data.make_one_shot_iterator if FLAGS.one_shot else tf.data.make_initializable_iterator
  ones = make(data).get_next()
  if FLAGS.last == shard.index:
    with tf.control_dependencies([tf.numpy_function(_dawdle, [], tf.int64)]):
      ones = tf.identity(ones)
  return ones, ones * shard.index


def _dawdle():
  threading.Event().wait(0.05)
  return np.int64(0)


class _Mortal(tf.train.GradientDescentOptimizer):
  """Makes its update of the first variable, and may die before that of the others."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    grads_and_vars = list(grads_and_vars)

    def die(step):
      if step >= FLAGS.die_at and not os.path.exists(FLAGS.died):
        with open(FLAGS.died, "w") as file:
          file.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
      return step

    with tf.control_dependencies([super().apply_gradients(grads_and_vars[:1])]):
      step = global_step.read_value()
    with tf.device(_worker()):
      step = tf.numpy_function(die, [step], tf.int64)
    with tf.control_dependencies([step]):
      return super().apply_gradients(grads_and_vars[1:], global_step, name)


def _worker():
  """The device of this process, where `die` is known."""
  from tf1ps.cluster import server
  return server.latest_record().cluster.task.name


def model_fn(features, labels, mode):
  """Every update adds 1 to both variables. A worker's loss is its label - (first + second)."""
  first = tf.get_variable("first", [], initializer=tf.zeros_initializer())
  second = tf.get_variable("second", [], initializer=tf.zeros_initializer())
  loss = tf.reduce_mean(labels - (first + second) * features)
  optimizer = _Mortal(1.0) if FLAGS.die_at >= 0 else tf.train.GradientDescentOptimizer(1.0)
  return tf1ps.ModelSpec(
    loss=loss, optimizer=optimizer,
    metrics={"first": tf.metrics.mean(first), "second": tf.metrics.mean(second)})
