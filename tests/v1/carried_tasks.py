"""A program with tf.layers and batch normalisation, whose training may move to another TensorFlow.

As a script: `python -m tests.v1.carried_tasks FOLDER LAST_STEP`.
"""
from __future__ import annotations

import json
import sys

import numpy as np


def train(folder, last_step):
  """Trains up to a global step, and keeps a checkpoint; prints the variables' checksums."""
  import tf1ps.v1 as tf
  random = np.random.RandomState(0)
  images = random.uniform(-1, 1, [64, 6, 6, 1]).astype(np.float32)
  answers = images[:, :2, :2].sum((1, 2)) + images[:, 3:].max((1, 2))
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    chosen = tf.cast(step * 8 % 64, tf.int32) + tf.range(8)
    outputs = model(tf, tf.gather(images, chosen))
    loss = tf.losses.mean_squared_error(tf.gather(answers, chosen), outputs)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
      train_op = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, step)
    with tf.control_dependencies([train_op]):
      values = {variable.op.name: tf.identity(variable.read_value())
                for variable in tf.global_variables()}
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder, hooks=[tf.train.StopAtStepHook(last_step=last_step)],
        save_summaries_steps=None, save_summaries_secs=None, config=config) as session:
      while not session.should_stop():
        last = session.run(values)
  print("variables: " + json.dumps({
    name: float(np.mean(np.ravel(value) * np.linspace(1, 2, np.size(value))))
    for name, value in last.items()}), flush=True)


def model(tf, images):
  hidden = tf.layers.conv2d(images, 4, 3, use_bias=False,
                            kernel_initializer=tf.glorot_uniform_initializer(seed=1))
  hidden = tf.layers.batch_normalization(hidden, momentum=0.9, training=True)
  hidden = tf.layers.flatten(tf.layers.max_pooling2d(tf.nn.relu(hidden), 2, 2))
  return tf.layers.dense(hidden, 1, kernel_initializer=tf.glorot_uniform_initializer(seed=2))


if __name__ == "__main__":
  train(sys.argv[1], int(sys.argv[2]))
