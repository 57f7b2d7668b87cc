from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.compat import last_step_of, saver_arguments


def test_the_arguments_of_a_hook():
  listener = tf.train.CheckpointSaverListener()
  with tf.Graph().as_default():
    tf.Variable(1)
    saver, scaffold = tf.train.Saver(), tf.train.Scaffold()
    by_steps = tf.train.CheckpointSaverHook("/c", save_steps=7, saver=saver, listeners=[listener])
    by_secs = tf.train.CheckpointSaverHook(
      "/c", save_secs=5, scaffold=scaffold, checkpoint_basename="b")
  assert saver_arguments(by_steps) == (
    "/c", "model.ckpt", None, 7, saver, None, [listener], True)
  assert saver_arguments(by_secs) == ("/c", "b", 5, None, None, scaffold, [], True)


def test_the_last_step_of_a_hook():
  by_number = tf.train.StopAtStepHook(num_steps=3)
  assert last_step_of([tf.train.SessionRunHook(), by_number]) is None
  assert last_step_of([by_number, tf.train.StopAtStepHook(last_step=7)]) == 7
