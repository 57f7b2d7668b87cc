from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.transfer import constants


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_an_optimizers_numbers_do_not_travel(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter(2)):
    a, b = graphs.variable("a", [2], use_resource), graphs.variable("b", [2], use_resource)
    optimizer = tf.train.AdamOptimizer(0.5)
    loss = tf.reduce_sum(a) + tf.reduce_sum(tf.square(b))
    train = optimizer.minimize(loss)
    before = graphs.crossings(source=WORKER)
    assert constants.keep_constants_local() == 8  # four numbers for each ps
    after = graphs.crossings(source=WORKER)
    assert len(before) - len(after) == 8
    assert not [tensor for tensor, _ in after if tensor.op.type == "Const"]
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      session.run(train)
      assert session.run(a).tolist() == pytest.approx([-0.5, -0.49], abs=1e-5)


def test_large_ones_and_others_than_constants_are_left():
  with tf.device(WORKER):
    large, small, computed = tf.zeros([100]) + 0.0, tf.constant([1.0]), tf.random.uniform([])
    large = tf.constant([1.0] * 100)
  with tf.device(PS[0]):
    total = tf.reduce_sum(large) + tf.reduce_sum(small) + computed
  assert constants.keep_constants_local() == 1
  assert {tensor.op for tensor, _ in graphs.crossings(WORKER)} == {large.op, computed.op}
  assert total.device


def test_without_tasks_nothing_is_copied():
  tf.reduce_sum(tf.constant([1.0]))
  assert constants.keep_constants_local() == 0
