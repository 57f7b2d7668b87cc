from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.compat import regularizers


def get_variable(name):
  return tf.get_variable(name, [3], initializer=tf.ones_initializer(), use_resource=False,
                         regularizer=lambda value: tf.reduce_sum(value))


def moving_averages():
  get_variable("v")
  loss, = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
  assert isinstance(loss, tf.Tensor) and loss.op.name == "v/Regularizer/Sum"
  averages = tf.train.ExponentialMovingAverage(0.5)
  update = averages.apply([loss, tf.losses.get_total_loss()])
  with tf.control_dependencies([update, tf.group(loss), *tf.tuple([loss])]):
    return averages.average(loss).read_value(), 1.5  # half of the way from 0 to 3


def loss_of_a_variable_that_a_loop_makes():
  with tf.variable_scope("loop", reuse=tf.AUTO_REUSE):
    tf.while_loop(lambda i: i < 2, lambda i: i + tf.cast(get_variable("v")[0], tf.int32), [0])
  loss, = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
  return tf.add_n([loss, loss]), 6.0  # outside of the loop


def other_things():
  for thing in ("text", tf.constant(1), None):
    tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, thing)
    assert tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)[-1] is thing
  return tf.constant(0.0), 0.0


def run():
  tf.disable_v2_behavior()
  for _ in range(2):
    regularizers.keep_tensors()
  for build in (moving_averages, loss_of_a_variable_that_a_loop_makes, other_things):
    with tf.Graph().as_default(), tf.Session() as session:
      tensor, expected = build()
      session.run(tf.global_variables_initializer())
      assert session.run(tensor) == expected, build


def test_losses_of_regularizers_are_tensors(start):
  task = start("losses", run)
  assert task.wait() == 0, task.output
