"""An image classifier by a coordinator, which tests it after each epoch and acts on the result.

Example E15.
Mechanism: inline evaluation on the coordinator. In an epoch the coordinator sends each training
image with one step. Two workers make the steps, on variables of two ps. Then the coordinator itself
evaluates, with the variables as they are on the ps. It halves the learning rate if the accuracy has
not risen, and stops at the target.
What to look for: no worker takes part in the evaluation, and no checkpoint is needed for it.
Toolkit: tf1ps.ClusterCoordinator (docs/coordinator.md) on tf1ps.local_cluster.

    $ python examples/fashion_images.py
    1437 images of 8 x 8 pixels to train on, 360 to test on
    epoch 1: loss ..., accuracy 0..., next rate 0.00...
    ...
    accuracy 0.95 reached: True

These are the handwritten digits in data/. With `--data_dir=FOLDER` it reads images of clothes or
others: a folder with the four IDX files of Fashion-MNIST or MNIST, plain or .gz. The target of
clothes is lower: `--target=0.88`.
"""
from __future__ import annotations

import handwritten_digits
import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps

flags.DEFINE_string("data_dir", None, "Folder with four IDX files; none: the digits here.")
flags.DEFINE_float("target", 0.95, "The accuracy to stop at.")
FLAGS = flags.FLAGS

CLASSES = 10
BATCH, EPOCHS, RATE = 32, 12, 0.004
TEST_BATCH = 1000  # images per run of the evaluation


def layer(name, inputs, shape):
  """A layer that multiplies by weights of this shape: a convolution if it has four axes."""
  with tf.variable_scope(name):
    weights = tf.get_variable("weights", shape, initializer=tf.glorot_uniform_initializer(seed=1))
    bias = tf.get_variable("bias", shape[-1:], initializer=tf.zeros_initializer())
  if len(shape) == 4:
    return tf.nn.conv2d(inputs, weights, strides=[1, 1, 1, 1], padding="SAME") + bias
  return tf.matmul(inputs, weights) + bias


def make_functions(side, white):
  """Returns the functions of the steps: to train, and to evaluate.

  Args:
    side: pixels along a side of an image.
    white: the largest value of a pixel.
  """
  def logits_of(images):
    images = tf.reshape(tf.cast(images, tf.float32) / white, [-1, side, side, 1])
    hidden = tf.nn.relu(layer("convolution", images, [3, 3, 1, 16]))
    hidden = tf.nn.max_pool(hidden, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID")
    size = (side // 2) ** 2 * 16
    hidden = tf.nn.relu(layer("hidden", tf.reshape(hidden, [-1, size]), [size, 64]))
    return layer("logits", hidden, [64, CLASSES])

  def train(images, labels, rate):
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits_of(images))
    update = tf.train.AdamOptimizer(rate).minimize(loss, tf.train.get_or_create_global_step())
    with tf.control_dependencies([update]):
      return tf.identity(loss)

  def count_right(images, labels):
    predicted = tf.argmax(logits_of(images), axis=1, output_type=tf.int32)
    return tf.reduce_sum(tf.cast(tf.equal(predicted, labels), tf.int32))

  return train, count_right


def coordinate(server, data, tests, target):
  """Trains until the accuracy reaches the target; returns whether it has."""
  side = int(round(data.images.shape[1] ** 0.5))
  print("%d images of %d x %d pixels to train on, %d to test on" % (
    len(data.labels), side, side, len(tests.labels)), flush=True)
  train, count_right = make_functions(side, float(data.white))
  draw = np.random.RandomState(1)
  rate, best = RATE, 0.0
  with tf1ps.ClusterCoordinator(server) as coordinator:
    for epoch in range(1, EPOCHS + 1):
      batches = np.array_split(draw.permutation(len(data.labels)), -(-len(data.labels) // BATCH))
      steps = [coordinator.schedule(train, (data.images[rows], data.labels[rows], rate))
               for rows in batches]
      coordinator.join()
      loss = np.mean(coordinator.fetch(steps))
      right = sum(coordinator.run(count_right, (tests.images[begin:begin + TEST_BATCH],
                                                tests.labels[begin:begin + TEST_BATCH]))
                  for begin in range(0, len(tests.labels), TEST_BATCH))
      accuracy = right / float(len(tests.labels))
      rate = rate if accuracy > best else rate / 2
      best = max(best, accuracy)
      print("epoch %d: loss %.3f, accuracy %.3f, next rate %.4f" % (epoch, loss, accuracy, rate),
            flush=True)
      if accuracy >= target:
        break
  return best >= target


def main(_):
  """Reads the images, and trains on a cluster in this process."""
  tf.disable_v2_behavior()
  data, tests = [handwritten_digits.read(mode, FLAGS.data_dir) for mode in ("train", "eval")]
  with tf1ps.local_cluster(num_ps=2, num_workers=2, chief=True) as cluster:
    print("accuracy %g reached: %s" % (
      FLAGS.target, coordinate(cluster.chief, data, tests, FLAGS.target)))


if __name__ == "__main__":
  app.run(main)
