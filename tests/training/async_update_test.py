from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.replication import staleness
from tf1ps.training import async_update

pytestmark = pytest.mark.usefixtures("control_flow_of_programs")


@pytest.mark.parametrize("damps, max_staleness, w, ages", [
  (False, None, [9, 8, 7], [0, 2, 1]), (True, None, [9, 8.5, 7.5], [0, 2, 1]),
  (False, 1, [9, 9, 8], [0, 2, 1]), (True, 1, [9, 9, 8], [0, 2, 1]),
  (True, 2, [9, 8.5, 7.5], [0, 2, 1])])
def test_policies_alone_and_together(damps, max_staleness, w, ages):
  with tf.Graph().as_default(), tf.Session() as session:
    variable = tf.get_variable("w", initializer=10.0)
    step = tf.train.get_or_create_global_step()
    others, gradient = tf.placeholder(tf.int64, []), tf.placeholder(tf.float32, [])
    begun = staleness.begin_gradient_age(step)
    with tf.control_dependencies([begun]):
      between = tf.assign_add(step, others)
    with tf.control_dependencies([between]):
      computed = tf.identity(gradient)
    update = async_update.build_update(
      [(computed, variable)],
      step,
      tf.train.GradientDescentOptimizer(1.0),
      (
        lambda age: tf.train.GradientDescentOptimizer(
          staleness.damped_learning_rate(1.0, age)
        )
      )
      if damps
      else None,
      max_staleness,
      begun,
    )
    session.run(tf.global_variables_initializer())
    found = []
    for n in (0, 2, 1):
      age, _ = session.run([update.age, update.train_op], {others: n, gradient: 1.0})
      found.append((session.run(variable), age))
  assert found == list(zip(w, ages))
  assert (update.taken is None) == (max_staleness is None)


@pytest.mark.parametrize("max_staleness", [None, 1])
def test_an_optimizer_that_ignores_the_global_step_is_counted(max_staleness):
  class IgnoresStep(tf.train.GradientDescentOptimizer):
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
      return super().apply_gradients(grads_and_vars, name=name)

  with tf.Graph().as_default(), tf.Session() as session:
    variable = tf.get_variable("w", initializer=10.0)
    step = tf.train.get_or_create_global_step()
    update = async_update.build_update(
      [(tf.constant(1.0), variable)], step, IgnoresStep(1.0), None, max_staleness)
    session.run(tf.global_variables_initializer())
    for _ in range(2):
      session.run(update.train_op)
    assert session.run([variable, step]) == [8.0, 2]
