from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.transfer import adam, packed_optimizer

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")
IDS = [[1, 4, 1], [4, 4, 4], [0, 1, 1], [5, 5, 3]]  # of four steps: rows that repeat


def train(optimizer, use_resource, shape=(6, 2)):
  """The table and its slots after the steps."""
  with tf.Graph().as_default(), tf.Session() as session:
    table = tf.get_variable("table", initializer=np.linspace(-1, 1, 12, dtype=np.float32).reshape(
      shape), use_resource=use_resource)
    ids = tf.placeholder(tf.int64, [None])
    loss = tf.reduce_sum(tf.square(tf.gather(table, ids) - 0.3))
    opt = optimizer(0.1)
    update = opt.minimize(loss)
    assert isinstance(tf.gradients(loss, table)[0], tf.IndexedSlices)
    session.run(tf.global_variables_initializer())
    for step in IDS:
      session.run(update, {ids: step})
    operations = len(session.graph.get_operations())
    return session.run([table, *[opt.get_slot(table, name) for name in "mv"]]), operations


@pytest.mark.parametrize("shape", [(6, 2), (12,), (6, 1, 2)])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_the_values_and_the_slots_are_those_of_tensorflow(use_resource, shape):
  stock, _ = train(tf.train.AdamOptimizer, use_resource, shape)
  ours, _ = train(adam.AdamOptimizer, use_resource, shape)
  for one, other in zip(ours, stock):
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_a_sparse_gradient_is_applied_by_one_operation(use_resource):
  with tf.Graph().as_default() as graph:
    table = tf.get_variable("table", [6, 2], use_resource=use_resource)
    adam.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.gather(table, [1, 1])))
    types = [op.type for op in graph.get_operations()]
  assert types.count("ResourceApplyAdam" if use_resource else "ApplyAdam") == 1
  assert not {"ScatterAdd", "ResourceScatterAdd", "AssignSub", "AssignSubVariableOp"} & set(types)


def adamw_by_hand(rate, weight_decay, steps=IDS, beta1=0.9, beta2=0.999, epsilon=1e-8):
  """The table after the steps of `train`, by the formulas of the paper."""
  table = np.linspace(-1, 1, 12).reshape(6, 2)
  m, v = np.zeros_like(table), np.zeros_like(table)
  for step, ids in enumerate(steps, 1):
    gradient = np.zeros_like(table)
    np.add.at(gradient, ids, 2 * (table[ids] - 0.3))
    m = beta1 * m + (1 - beta1) * gradient
    v = beta2 * v + (1 - beta2) * gradient ** 2
    move = m / (1 - beta1 ** step) / (np.sqrt(v / (1 - beta2 ** step)) + epsilon)
    table = table - rate * (move + weight_decay * table)
  return table


@pytest.mark.parametrize("weight_decay", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_adamw_is_the_algorithm_of_the_paper(use_resource, weight_decay):
  """With sparse gradients; rows without one decay as well."""
  (table, _, _), _ = train(
    lambda rate: adam.AdamWOptimizer(rate, weight_decay), use_resource)
  np.testing.assert_allclose(table, adamw_by_hand(0.1, weight_decay), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_adamw_of_packed_dense_gradients_and_a_schedule(use_resource):
  """Each variable decays once per update, by the learning rate of that step."""
  rates = [0.1, 0.05, 0.025]
  with tf.Graph().as_default(), tf.Session() as session:
    count = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, count, 1, 0.5)
    ones = [tf.get_variable("v%d" % i, initializer=np.float32([1, -2]), use_resource=use_resource)
            for i in range(3)]
    opt = packed_optimizer.PackedOptimizer(adam.AdamWOptimizer(rate, 0.1))
    update = opt.minimize(tf.add_n([tf.reduce_sum(one) for one in ones]), count)
    session.run(tf.global_variables_initializer())
    for _ in rates:
      session.run(update)
    found = session.run(ones)
  expected = np.float64([1, -2])
  for one in rates:  # the gradient is 1 in each step, so Adam's move is 1
    expected = expected - one * (1 + 0.1 * expected)
  np.testing.assert_allclose(found, [expected] * 3, rtol=1e-5)


def test_adamw_refuses_a_weight_decay_below_0():
  with pytest.raises(ValueError, match="weight_decay must be at least 0, got -0.1"):
    adam.AdamWOptimizer(0.1, -0.1)
