from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps import transfer
from tf1ps.compat import learning_rate_in

MAKERS = {
  "sgd": tf.train.GradientDescentOptimizer, "adam": tf.train.AdamOptimizer,
  "momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
  "adagrad": tf.train.AdagradOptimizer, "adadelta": tf.train.AdadeltaOptimizer,
  "rmsprop": tf.train.RMSPropOptimizer, "ftrl": tf.train.FtrlOptimizer,
  "lazy_adam": transfer.LazyAdamOptimizer,
  "packed": lambda rate: transfer.PackedOptimizer(tf.train.AdamOptimizer(rate))}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_rate_of_an_optimizer(make):
  with tf.Graph().as_default():
    assert learning_rate_in(make(0.25)) == 0.25
    schedule = tf.train.exponential_decay(0.5, tf.constant(2), 1, 0.1)
    with tf.Session() as session:
      assert session.run(learning_rate_in(make(schedule))) == pytest.approx(0.005)


def test_a_rate_that_is_not_known():
  with tf.Graph().as_default():
    assert learning_rate_in(tf.train.AdamOptimizer(lambda: 0.5)) is None
    assert learning_rate_in(tf.train.GradientDescentOptimizer(tf.constant([1.0, 2.0]))) is None
    assert learning_rate_in(object()) is None
