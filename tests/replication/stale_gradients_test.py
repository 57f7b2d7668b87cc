from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.replication.nodes import WORKERS
from tf1ps.program import OPTIMIZERS, optimizers
from tf1ps.replication import stale_gradients, staleness

AGES = [0, 3, 1, 2, 17, 0]  # updates that others make while a gradient is computed
RATE = 0.5
PLACES = ["/job:ps/task:0", WORKERS[1]]  # the first keeps the global step


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def control_flow(request):
  was = tf.control_flow_v2_enabled()
  (tf.enable_control_flow_v2 if request.param else tf.disable_control_flow_v2)()
  yield request.param
  (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


class Step(object):
  """A training step in whose middle others make `others` updates of the global step."""

  def __init__(self, use_resource, make_optimizer, max_staleness=None, damping=False):
    def variable(name, value, place):
      with tf.device(place):
        return tf.get_variable(name, initializer=value, use_resource=use_resource)

    self.step = variable("step", np.int64(0), PLACES[0])
    self.variables = [variable("w", np.float32(0), PLACES[0]),
                      variable("table", np.zeros([3, 2], np.float32), PLACES[1])]
    self.others = tf.placeholder(tf.int64, [])
    with tf.device(WORKERS[0]):
      begun = staleness.begin_gradient_age(self.step)
      with tf.control_dependencies([begun]):
        between = tf.assign_add(self.step, self.others)
      with tf.control_dependencies([between]):
        ones = tf.ones([2])
      # A slope of 1 in w and in two of the rows of the table.
      rows = tf.gather(self.variables[1], [0, 2])
      loss = tf.reduce_sum(ones * self.variables[0]) / 2 + tf.reduce_sum(rows)
      found = tf.gradients(loss, self.variables)
      with tf.control_dependencies([between]):
        found[1] = tf.IndexedSlices(tf.identity(found[1].values), found[1].indices)
      self.age = stale_gradients.age_at_push(self.step, begun, found)
      rate = stale_gradients.damped_learning_rate(RATE, self.age) if damping else RATE
      pairs = list(zip(found, self.variables))
      if max_staleness is None:
        self.train_op = make_optimizer(rate).apply_gradients(pairs, self.step)
        self.taken = tf.constant(True)
      else:
        self.train_op, self.taken = stale_gradients.apply_unless_older(
          make_optimizer(rate), pairs, self.step, self.age, max_staleness)

  def run(self, session):
    """Runs a step for each of the ages; returns ages, who was taken, and the variables."""
    session.run(tf.global_variables_initializer())
    found = [session.run([self.age, self.taken, self.train_op], {self.others: n})[:2]
             for n in AGES]
    ages, taken = zip(*found)
    assert session.run(self.step) == sum(AGES) + sum(taken)
    w, table = session.run(self.variables)
    np.testing.assert_array_equal(table[1], [0, 0])
    np.testing.assert_allclose(table[[0, 2]], np.full([2, 2], w), rtol=1e-5)
    return list(ages), list(taken), w


def reference(name, max_staleness=np.inf, damping=False):
  """w by the optimizers' formulas, for gradients of 1."""
  w = sum_ = square = 0.0
  made = 0
  for age in AGES:
    if age > max_staleness:
      continue
    rate = RATE / max(1, age) if damping else RATE
    made += 1
    if name == "sgd":
      w -= rate
    elif name == "momentum":
      sum_ = 0.9 * sum_ + 1
      w -= rate * sum_
    else:
      sum_, square = 0.9 * sum_ + 0.1, 0.999 * square + 0.001
      rate *= np.sqrt(1 - 0.999 ** made) / (1 - 0.9 ** made)
      w -= rate * sum_ / (np.sqrt(square) + 1e-8)
  return w


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "ref"])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_old_gradients_are_dropped_and_leave_no_trace(nodes, control_flow, use_resource, name):
  if control_flow and not use_resource:
    with nodes.graph(), pytest.raises(ValueError, match="call tf.disable_control_flow_v2"):
      Step(use_resource, lambda rate: optimizers.make_optimizer(name, rate), 2)
    return
  with nodes.graph():
    step = Step(use_resource, lambda rate: optimizers.make_optimizer(name, rate), 2)
    made = {v.op.name: v.device for v in tf.global_variables()}
    with nodes.session() as session:
      ages, taken, w = step.run(session)
  assert ages == AGES
  assert taken == [True, False, True, True, False, True]
  # What the optimizer makes has the names and places that it has without a policy.
  with tf.Graph().as_default():
    Step(use_resource, lambda rate: optimizers.make_optimizer(name, rate))
    assert made == {v.op.name: v.device for v in tf.global_variables()}
  assert w == pytest.approx(reference(name, 2), rel=1e-5)


@pytest.mark.parametrize("max_staleness", [None, 2])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_the_learning_rate_is_divided_by_the_age(nodes, name, max_staleness):
  with nodes.graph():
    step = Step(True, lambda rate: optimizers.make_optimizer(name, rate), max_staleness, True)
    with nodes.session() as session:
      ages, _, w = step.run(session)
  assert ages == AGES
  limit = np.inf if max_staleness is None else max_staleness
  assert w == pytest.approx(reference(name, limit, damping=True), rel=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_a_rate_that_is_lowered(name):
  found = []
  for lowered in (True, False):
    with tf.Graph().as_default(), tf.Session() as session:
      age = tf.placeholder(tf.int64, [])
      rate = stale_gradients.damped_learning_rate(RATE, age) if lowered else RATE / 4
      w = tf.get_variable("w", initializer=1.0)
      train_op = optimizers.make_optimizer(name, rate).minimize(w * w / 2)
      session.run(tf.global_variables_initializer())
      for _ in range(2):
        session.run(train_op, {age: 4})
      found.append(session.run(w))
  assert found[0] == pytest.approx(found[1], rel=1e-6) and found[0] < 1


def test_a_gradient_as_old_as_zero_may_be_asked_for_and_less_not():
  with tf.Graph().as_default():
    w, step = tf.get_variable("w", initializer=1.0), tf.train.get_or_create_global_step()
    sgd, pairs = tf.train.GradientDescentOptimizer(1.0), [(tf.ones([]), w)]
    with pytest.raises(ValueError, match="max_staleness must be at least 0, got -1"):
      stale_gradients.apply_unless_older(sgd, pairs, step, tf.zeros([], tf.int64), -1)
    applied = stale_gradients.apply_unless_older(sgd, pairs, step, tf.zeros([], tf.int64), 0)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      assert session.run([applied.taken, applied.train_op])[0]
      assert session.run([w, step]) == [0.0, 1]
