"""Handwritten digits by a convolution, batch normalisation and dropout, with `tf.layers`.

    export TF_USE_LEGACY_KERAS=1
    tf1ps-local --program=examples/convolution.py --num_ps=1 --num_workers=2 --epochs=20

On TensorFlow 2, `tf.layers` needs the package `tf_keras` and that variable in the environment.
TensorFlow 1.15 needs neither. `tf.layers.batch_normalization` puts the updates of its moving
averages into UPDATE_OPS, and each step makes them. `tf.keras.layers.BatchNormalization` does not.

The data and the flag --data_dir are those of digits.py.
"""
from __future__ import annotations

import digits
import tensorflow.compat.v1 as tf

import tf1ps

FILTERS = 16

input_fn = digits.input_fn


def model_fn(features, labels, mode):
  """Convolution 3x3, batch normalisation, pooling, dropout and a dense layer."""
  is_training = mode == "train"
  side = int(round(int(features.shape[1]) ** 0.5))
  images = tf.reshape(features, [-1, side, side, 1])
  hidden = tf.layers.conv2d(images, FILTERS, 3, padding="same", use_bias=False)
  hidden = tf.nn.relu(tf.layers.batch_normalization(hidden, momentum=0.9, training=is_training))
  hidden = tf.layers.flatten(tf.layers.max_pooling2d(hidden, 2, 2))
  logits = tf.layers.dense(tf.layers.dropout(hidden, 0.3, training=is_training), digits.DIGITS)
  digit = tf.argmax(logits, axis=1, output_type=tf.int32)
  if mode == "predict":
    return tf1ps.ModelSpec(predictions={"digit": digit})
  return tf1ps.ModelSpec(
    loss=tf.losses.sparse_softmax_cross_entropy(labels, logits),
    metrics={"accuracy": tf.metrics.accuracy(labels, digit)})
