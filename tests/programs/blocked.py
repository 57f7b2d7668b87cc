"""A program whose step waits for a queue that nobody fills again, after its first 100 steps."""
import tensorflow.compat.v1 as tf

import tf1ps


class _Fill(tf.train.SessionRunHook):
  def __init__(self, fill):
    self._fill = fill

  def after_create_session(self, session, coord):
    session.run(self._fill)


def input_fn(mode, shard):
  """The numbers 0 to 99; when training by a queue that is filled once."""
  values = tf.range(100, dtype=tf.float32)
  if mode != "train":
    return values, None
  queue = tf.FIFOQueue(100, [tf.float32], [[]])
  tf.add_to_collection("fill", queue.enqueue_many([values]))
  return queue.dequeue_many(1), None


def model_fn(features, labels, mode):
  """The loss is least at the mean of the numbers."""
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  return tf1ps.ModelSpec(loss=1e-4 * tf.reduce_mean(tf.square(w - features)),
                         hooks=[_Fill(fill) for fill in tf.get_collection("fill")])
