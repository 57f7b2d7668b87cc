from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import (
  add_iterations,
  give_step_to_hooks,
  last_step_of,
  saver_arguments,
  stop_arguments,
)


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


def test_the_arguments_of_a_stop():
  assert stop_arguments(tf.train.StopAtStepHook(num_steps=3)) == (3, None)
  assert stop_arguments(tf.train.StopAtStepHook(last_step=7)) == (None, 7)


def test_a_hook_that_logs_counts_more_runs():
  with tf.Graph().as_default(), tf.Session() as session:
    hook = tf.train.LoggingTensorHook([tf.constant(1)], every_n_iter=5)
    hook.begin()
    fetched = []
    for _ in range(4):
      fetches = hook.before_run(None)
      fetched.append(fetches is not None)
      if fetches is not None:
        hook.after_run(None, tf.train.SessionRunValues(session.run(fetches.fetches), None, None))
      else:
        hook.after_run(None, None)
      add_iterations(hook, 2)
    assert fetched == [True, False, True, False]  # at the iterations 0 and 6


def test_hooks_take_the_step_that_they_are_given():
  with tf.Graph().as_default() as graph:
    tf.get_variable("global_step", [])  # of floats
    hook = tf.train.StopAtStepHook(num_steps=3)
    with pytest.raises(TypeError):
      hook.begin()
    given = tf.constant(5)
    give_step_to_hooks(given)
    hook.begin()
    assert hook.before_run(None).fetches is given
    assert graph.get_tensor_by_name("global_step:0") is not given
