"""The network of `tensorflow.examples.tutorials.mnist.mnist`: two hidden layers for MNIST.

Variables have the same names and shapes as in that module: `hidden1/weights` and so on.
"""

from __future__ import annotations

import math

import tensorflow.compat.v1 as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images, hidden1_units, hidden2_units):
  """Returns the logits, `[batch, 10]`, of images, `[batch, 784]`."""
  hidden = tf.nn.relu(_linear("hidden1", images, IMAGE_PIXELS, hidden1_units))
  hidden = tf.nn.relu(_linear("hidden2", hidden, hidden1_units, hidden2_units))
  return _linear("softmax_linear", hidden, hidden2_units, NUM_CLASSES)


def _linear(name, inputs, depth, units):
  with tf.name_scope(name):
    weights = tf.Variable(
        tf.truncated_normal([depth, units], stddev=1.0 / math.sqrt(depth)), name="weights")
    return tf.matmul(inputs, weights) + tf.Variable(tf.zeros([units]), name="biases")


def loss(logits, labels):
  """Returns the mean cross entropy of labels, `[batch]`."""
  return tf.losses.sparse_softmax_cross_entropy(labels=tf.cast(labels, tf.int64), logits=logits)


def training(loss, learning_rate):
  """Returns an operation that makes a step of gradient descent; adds a summary of the loss."""
  tf.summary.scalar("loss", loss)
  global_step = tf.Variable(0, name="global_step", trainable=False)
  return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def evaluation(logits, labels):
  """Returns the number of examples in the batch whose label has the highest logit."""
  return tf.reduce_sum(tf.cast(tf.nn.in_top_k(logits, labels, 1), tf.int32))
