from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.transfer import constants, packing, pulls


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_regularizers_send_nothing(cluster, use_resource):
  found = []
  for packs in (False, True):
    with cluster.graph(), tf.device(graphs.setter()):
      x = tf.ones([1, 2])
      for layer in range(4):
        x = tf.matmul(x, tf.get_variable(
          "w%d" % layer, [2, 2], use_resource=use_resource,
          initializer=tf.glorot_uniform_initializer(seed=layer),
          regularizer=lambda w: 0.1 * tf.nn.l2_loss(w) + tf.reduce_sum(tf.abs(w))))
      loss = tf.reduce_sum(x) + tf.losses.get_regularization_loss()
      optimizer = tf.train.GradientDescentOptimizer(0.1)
      pairs = optimizer.compute_gradients(loss)
      if packs:
        pairs = packing.pack_gradients(pairs)
      train = optimizer.apply_gradients(pairs)
      if packs:
        pulls.fetch_variables()
        constants.keep_constants_local()
        assert len(graphs.crossings(PS[0], WORKER)) == 1
      init = tf.global_variables_initializer()
      with cluster.session() as session:
        session.run(init)
        found.append([session.run([loss, train])[0] for _ in range(3)])
        received = graphs.received(session, [loss, train])
  assert len(set(found[0])) == 3
  np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
  assert len(received[WORKER]) <= 2  # the values, and that the update is done
  assert len(received[PS[0]]) == 1


def test_what_needs_another_variable_or_waits_stays_there():
  with tf.device(graphs.setter()):
    a = graphs.variable("a", [2], True)
    other = graphs.variable("other", [2], True)
    random = graphs.variable("random", [2], True)
    tf.reduce_sum(a + random)
    with tf.device(PS[0]):
      sums = [tf.reduce_sum(a * other), tf.reduce_sum(random + tf.random.uniform([2]))]
      with tf.control_dependencies([sums[0]]):
        sums.append(tf.reduce_sum(a.read_value() + 0.0))
      large = tf.tile(a, [50])
    results = [one + 1.0 for one in sums + [large]]
  pulls.fetch_variables()
  assert [one.op.inputs[0] is each for one, each in zip(results, sums + [large])] == [True] * 4
