from __future__ import annotations

import re

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.program import choices, optimizers

# w after two steps on the loss w * w / 2 from w = 1, with a learning rate of 0.1: each optimizer's
# formula by hand, as tf.train's documentation gives it with the defaults there.
TWO_STEPS = {
    "sgd": 0.81,  # w * 0.9, twice
    "momentum": 0.72,  # 0.9; then the sum of gradients is 0.9 * 1 + 0.9
    "nesterov": 0.5751,  # 1 - 0.1 * 1.9 = 0.81; then the sum is 1.71, the step 0.81 + 0.9 * 1.71
    "adam": 0.80041,  # 0.9; then m = 0.18, v = 0.001809, the rate 0.1 * 0.04471 / 0.19
    "lazy_adam": 0.80041,  # a dense gradient's is Adam's
    "adagrad": 0.83934,  # the squares sum to 0.1 + 1, then to 0.8184 more
    "rmsprop": 0.80913,  # the mean square is 1, then 0.981
    "proximal_sgd": 0.81,
    "proximal_adagrad": 0.83934,
}


@pytest.mark.parametrize("name", choices.OPTIMIZERS)
def test_each_name_makes_its_optimizer(name):
  with tf.Graph().as_default():
    w = tf.get_variable("w", initializer=1.)
    step = optimizers.make_optimizer(name, 0.1).minimize(w * w / 2)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(step)
      session.run(step)
      found = session.run(w)
  assert found < 1
  if name in TWO_STEPS:
    assert found == pytest.approx(TWO_STEPS[name], abs=2e-5)


def test_the_table_gives_the_default_learning_rates():
  table = dict(re.findall(r"^  (\w+) +(0\.\d+|1\.0) ", optimizers.__doc__, re.MULTILINE))
  assert tuple(table) == choices.OPTIMIZERS
  for name in choices.OPTIMIZERS:
    made = optimizers.make_optimizer(name)
    attributes = vars(made)
    rate = attributes.get("_lr", attributes.get("_learning_rate"))
    assert rate == float(table[name])


def test_a_learning_rate_may_be_a_tensor():
  with tf.Graph().as_default():
    w = tf.get_variable("w", initializer=1.)
    step = optimizers.make_optimizer("sgd", tf.constant(0.5)).minimize(w * w / 2)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(step)
      assert session.run(w) == 0.5


def test_a_wrong_name_gets_the_nearest():
  with pytest.raises(ValueError, match="there is no optimizer 'adamm': did you mean \"adam\""):
    optimizers.make_optimizer("adamm", 0.1)
  with pytest.raises(ValueError, match="no optimizer 'xyz': it is one of adadelta, adagrad"):
    optimizers.make_optimizer("xyz")


@pytest.mark.parametrize("rate", [0, -0.1, float("nan"), float("inf")])
def test_a_learning_rate_must_be_positive(rate):
  with pytest.raises(ValueError, match="learning_rate must be above 0 and finite, got"):
    optimizers.make_optimizer("sgd", rate)
