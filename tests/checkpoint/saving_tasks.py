"""A trainer that saves at every step, for tests to kill."""
from __future__ import annotations

import tensorflow.compat.v1 as tf

import tf1ps

SIZE = 2 ** 20  # floats in each of the two variables


def save_forever(directory, sharded):
  """Trains without an end; prints each step after its checkpoint. Each value is the global step."""
  tf.disable_v2_behavior()
  step = tf.train.get_or_create_global_step()
  values = []
  for index in range(2):
    with tf.device("/cpu:%d" % index):
      values.append(tf.get_variable(
        "v%d" % index, [SIZE], initializer=tf.zeros_initializer(), use_resource=True))
  count = tf.identity(step.assign_add(1))
  updates = [value.assign(tf.fill([SIZE], tf.cast(count, tf.float32))).op for value in values]
  with tf1ps.MonitoredTrainingSession(
      checkpoint_dir=directory, save_checkpoint_steps=1, save_summaries_steps=None,
      log_step_count_steps=None, config=tf.ConfigProto(device_count={"CPU": 2}),
      scaffold=tf.train.Scaffold(saver=tf.train.Saver(sharded=sharded, max_to_keep=2)),
  ) as session:
    while True:
      print("step %d" % session.run([count, updates])[0], flush=True)
