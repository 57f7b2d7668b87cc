from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.transfer import buckets, fetch, local_copies


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.fixture
def control_flow_v1():
  is_v2 = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  yield
  if is_v2:
    tf.enable_control_flow_v2()


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_an_optimizers_numbers_do_not_travel(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter(2)):
    a, b = graphs.variable("a", [2], use_resource), graphs.variable("b", [2], use_resource)
    optimizer = tf.train.AdamOptimizer(0.5)
    loss = tf.reduce_sum(a) + tf.reduce_sum(tf.square(b))
    train = optimizer.minimize(loss)
    before = graphs.crossings(source=WORKER)
    assert local_copies.keep_constants_local() == 8  # four numbers for each ps
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
  assert local_copies.keep_constants_local() == 1
  assert {tensor.op for tensor, _ in graphs.crossings(WORKER)} == {large.op, computed.op}
  assert total.device


@pytest.mark.parametrize("assigns_on", [PS[0], PS[1], WORKER])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_what_a_constant_waits_for_is_done_before_its_consumer(cluster, use_resource, assigns_on):
  """TensorFlow gives the wait to the constant alone, as the consumer waits for the constant."""
  with cluster.graph(), tf.device(graphs.setter(2)):
    w = graphs.variable("w", [], use_resource)
    with tf.device(assigns_on):
      other = graphs.variable("other", [], use_resource)
    updates = [w.assign(0.0).op, other.assign_add(1.0).op]
    with tf.control_dependencies(updates):
      with tf.device(WORKER):
        two, three = tf.constant(2.0), tf.constant(3.0)
      with tf.device(w.device):
        adding = [w.assign_add(two).op, w.assign_add(three).op]
    update = tf.group(adding)
    assert local_copies.keep_constants_local() >= 2
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      for step in range(3):
        session.run(update)
        assert session.run([w, other]) == [5.0, step + 1.0]
      from_worker = graphs.received(session, update).get(PS[0], [])
  # If a wait leads there, both copies wait for one constant.
  assert len(from_worker) <= {PS[0]: 0, PS[1]: 1, WORKER: 1}[assigns_on], from_worker


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_a_constant_in_a_loop_or_branch_stays_in_it(cluster, control_flow_v1, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    w = graphs.variable("w", [], use_resource)
    table = graphs.variable("table", [5, 2], use_resource)

    def body(i, total):
      row = tf.nn.embedding_lookup(table, tf.constant([1, 3]))
      with tf.control_dependencies([w.assign_add(tf.constant(2.0))]):
        return i + 1, total + tf.reduce_sum(row)

    total = tf.while_loop(lambda i, _: i < 3, body, [0, 0.0], parallel_iterations=1)[1]
    with tf.control_dependencies([total]):
      is_above = w.read_value() > 100.0
    branch = tf.cond(is_above, lambda: w.assign_add(tf.constant(50.0)) + 0.0, lambda: 0.0)
    local_copies.keep_constants_local()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      assert session.run([total, branch])[0] == pytest.approx(3 * (0.02 + 0.03 + 0.06 + 0.07))
      assert session.run(w) == 6.0


def test_without_tasks_nothing_is_copied():
  tf.reduce_sum(tf.constant([1.0]))
  assert local_copies.keep_constants_local() == 0


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
        pairs = buckets.pack_gradients(pairs)
      train = optimizer.apply_gradients(pairs)
      if packs:
        fetch.fetch_variables()
        local_copies.keep_constants_local()
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
  fetch.fetch_variables()
  assert [one.op.inputs[0] is each for one, each in zip(results, sums + [large])] == [True] * 4
