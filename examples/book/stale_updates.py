"""The graph of stale_gradients.py: a network, and an update of each kind.

A step notes the global step before it reads the variables, and again before its update: the
difference is the age of its gradient. Each kind of update is one operation, and a worker runs the
one of its remedy.
"""

import time

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication import (
  Clocks,
  age_at_push,
  apply_unless_older,
  begin_gradient_age,
  damped_learning_rate,
)
from tf1ps.state import Barrier

MAX_STALENESS = 2  # of a gradient that is not dropped


def weights(name, shape, seed):
  """A variable that an initializer fills anew for each seed."""
  limit = np.sqrt(6.0 / sum(shape))
  return tf.get_variable(name, initializer=tf.random.stateless_uniform(
    shape, [seed, shape[1]], -limit, limit))


class Model:
  """A worker's graph: one network 64-50-10, and an update of each kind."""

  def __init__(self, index, workers):
    self.images, self.digits = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32)
    self.rate, self.seed = tf.placeholder(tf.float32, []), tf.placeholder_with_default(0, [])
    self.pause = tf.placeholder_with_default(np.float32(0), [])
    self.step = tf.train.get_or_create_global_step()
    self.tickets, self.ages = [tf.get_variable(
      name, [], tf.int64, tf.zeros_initializer(), trainable=False) for name in ("tickets", "ages")]

    begun = begin_gradient_age(self.step)  # and the variables are read meanwhile
    images = tf.numpy_function(lambda images, pause: (time.sleep(float(pause)), images)[1],
                               [self.images, self.pause], tf.float32)
    images.set_shape([None, 64])
    hidden = tf.tanh(tf.matmul(images, weights("hidden", [64, 50], self.seed)))
    self.loss = tf.losses.sparse_softmax_cross_entropy(
      self.digits, tf.matmul(hidden, weights("logits", [50, 10], self.seed)))
    pairs = tf.train.GradientDescentOptimizer(0.0).compute_gradients(self.loss)
    age = age_at_push(self.step, begun, [gradient for gradient, _ in pairs])
    plain, drop, damp = [tf.train.MomentumOptimizer(rate, 0.9, name=name) for name, rate in (
      ("plain", self.rate), ("drop", self.rate), ("damp", damped_learning_rate(self.rate, age)))]
    with tf.control_dependencies([age]):  # or the update itself might count
      updates = {"plain": plain.apply_gradients(pairs, self.step),
                 "damp": damp.apply_gradients(pairs, self.step)}
    updates["drop"] = apply_unless_older(
      drop, pairs, self.step, age, MAX_STALENESS).train_op
    # A step also raises its worker's clock, and takes the ticket for the worker's next minibatch.
    self.clocks = Clocks(self.step, workers, index)
    self.take, count = tf.assign_add(self.tickets, 1), tf.assign_add(self.ages, age)
    self.steps = {kind: [self.take, self.clocks.advance(update), count]
                  for kind, update in updates.items()}
    self.init = [tf.global_variables_initializer(), self.clocks.clear]
    self.barrier = Barrier("trial", workers, index)
