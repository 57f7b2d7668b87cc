from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.cluster import BoundedSession
from tf1ps.transfer import adam, graph_packing

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
NOTHING = graph_packing.Packed(0, 0, 0, 0)


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def layers(use_resource, count=3, name="layer", inputs=None):
  """Returns (x to feed, the mean of the squares of a network's output)."""
  x = tf.placeholder(tf.float32, [None, 3], name + "_x") if inputs is None else inputs
  y = x
  for i in range(count):
    w = graphs.variable("%s%d/w" % (name, i), [3, 3], use_resource)
    b = graphs.variable("%s%d/b" % (name, i), [3], use_resource)
    y = tf.tanh(tf.matmul(y, w) + b)
  return x, tf.reduce_mean(tf.square(y - 0.3))


OPTIMIZERS = {
  "sgd": lambda: tf.train.GradientDescentOptimizer(0.5),
  "adam": lambda: tf.train.AdamOptimizer(0.05),
  "adamw": lambda: adam.AdamWOptimizer(0.05, 0.1),
  "decayed": lambda: tf.train.MomentumOptimizer(tf.train.exponential_decay(
    0.5, tf.train.get_or_create_global_step(), 10, 0.9), 0.9)}


def train(cluster, use_resource, packs, optimizer, steps, num_ps=2, clips=True, averages=True):
  """The losses, the values, and what each task receives in a step."""
  with cluster.graph(), tf.device(graphs.setter(num_ps)):
    step = tf.train.get_or_create_global_step()
    x, loss = layers(use_resource)
    opt = OPTIMIZERS[optimizer]()
    pairs = opt.compute_gradients(loss)
    if clips:
      clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], 0.5)
      pairs = list(zip(clipped, [v for _, v in pairs]))
    update = opt.apply_gradients(pairs, global_step=step)
    if averages:
      with tf.control_dependencies([update]):
        update = tf.train.ExponentialMovingAverage(0.9, step).apply(tf.trainable_variables())
    values = tf.global_variables()
    packed = graph_packing.pack_graph() if packs else NOTHING
    # The averages begin with the values, which must be there for TensorFlow to send them.
    inits = tf.variables_initializer(tf.trainable_variables()), tf.global_variables_initializer()
    random = np.random.RandomState(3)
    with cluster.session() as session:
      for init in inits:
        session.run(init)
      losses = [session.run([loss, update], {x: random.rand(4, 3)})[0] for _ in range(steps)]
      values = session.run(values)
      received = graphs.received(session, [loss, update], {x: random.rand(4, 3)})
  return packed, losses, values, received


def kinds_of_all():
  """Each optimizer with both kinds of variables; half of them are fast."""
  for number, optimizer in enumerate(sorted(OPTIMIZERS)):
    for use_resource in (False, True):
      yield pytest.param(
        use_resource, optimizer, id="%s-%s" % (optimizer, "resource" if use_resource else "ref"),
        marks=[] if use_resource == bool(number % 2) else [pytest.mark.slow])


@pytest.mark.parametrize("use_resource, optimizer", list(kinds_of_all()))
def test_the_values_are_those_of_the_graph_as_it_was(cluster, use_resource, optimizer):
  _, losses, values, before = train(cluster, use_resource, False, optimizer, 20)
  packed, packed_losses, packed_values, after = train(cluster, use_resource, True, optimizer, 20)
  np.testing.assert_allclose(packed_losses, losses, atol=1e-6)
  for one, other in zip(packed_values, values):
    np.testing.assert_allclose(one, other, atol=1e-6)
  # The setter puts the difference of an average of ref variables on the worker.
  assert packed[:2] == ((6, 2) if use_resource else (12, 4))
  assert len(before[WORKER]) >= len(after[WORKER]) + 4
  assert sum(len(before[ps]) - len(after[ps]) for ps in PS) >= 4


def test_two_hundred_variables_need_few_messages(cluster):
  with cluster.graph(), tf.device(graphs.setter()):
    x, loss = layers(True, count=40)
    update = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    packed = graph_packing.pack_graph()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      received = graphs.received(session, update, {x: [[1, 2, 3]]})
  assert packed == (80, 2, 80, 2)  # the matrices need no reshaping, and so are apart
  assert [len(received[PS[0]]), len(received[WORKER])] == [2, 2]


def adversaries(use_resource):
  """Two networks, each with an optimizer: d needs the values of g, too."""
  z, fake = tf.placeholder(tf.float32, [None, 3], "z"), None
  for i in range(2):
    fake = tf.matmul(z if fake is None else fake, graphs.variable("g%d" % i, [3, 3], use_resource))
  real = tf.placeholder(tf.float32, [None, 3], "real")
  weights = [graphs.variable("d%d" % i, [3, 3], use_resource) for i in range(2)]

  def judge(y):
    return tf.reduce_mean(tf.matmul(tf.matmul(y, weights[0]), weights[1]))

  g_loss, d_loss = -judge(fake), judge(fake) - judge(real)
  opt = tf.train.GradientDescentOptimizer(0.1)
  of = {name: [v for v in tf.trainable_variables() if v.op.name.startswith(name)] for name in "gd"}
  return z, real, opt.minimize(g_loss, var_list=of["g"]), opt.minimize(d_loss, var_list=of["d"])


@KINDS
@pytest.mark.parametrize("joined", [False, True])
def test_each_optimizer_has_messages_of_its_own(cluster, use_resource, joined):
  """A run of one needs no feed of the other, and moves nothing for it."""
  with cluster.graph(), tf.device(graphs.setter()):
    z, real, train_g, train_d = adversaries(use_resource)
    if joined:
      tf.group(train_g, train_d)
    packed = graph_packing.pack_graph()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      for_g = graphs.received(session, train_g, {z: [[1, 2, 3]]})
      session.run(train_d, {z: [[1, 2, 3]], real: [[1, 2, 3]]})
  assert packed == (4, 1, 4, 2)  # both need all values
  assert [len(for_g[PS[0]]), len(for_g[WORKER])] == [1, 1]


@KINDS
def test_an_update_that_waits_for_another_ones_is_sent_after_it(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    x, first = layers(use_resource, 1, "first")
    _, second = layers(use_resource, 1, "second", x)
    opt = tf.train.GradientDescentOptimizer(0.1)
    update = opt.minimize(first)
    with tf.control_dependencies([update]):
      _, third = layers(use_resource, 1, "third", tf.identity(x))
      both = opt.minimize(second + third, var_list=[
        v for v in tf.trainable_variables() if not v.op.name.startswith("first")])
    packed = graph_packing.pack_graph()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      session.run(both, {x: [[1, 2, 3]]})
  # third's gradients wait for the first update, and second's may not have to.
  assert packed.gradients >= 4 and packed.pushes >= 2


@KINDS
def test_updates_by_hand_travel_together_if_something_groups_them(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    x, loss = layers(use_resource, 1)
    variables = tf.trainable_variables()
    grads = tf.gradients(loss, variables)
    update = tf.group(*[
      tf.raw_ops.AssignSubVariableOp(resource=v.handle, value=0.1 * g) if use_resource
      else v.assign_sub(0.1 * g) for v, g in zip(variables, grads)])
    assert graph_packing.pack_graph() == (2, 1, 2, 1)
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      before = session.run(variables)
      wanted = [v - 0.1 * g for v, g in zip(before, session.run(grads, {x: [[1, 2, 3]]}))]
      session.run(update, {x: [[1, 2, 3]]})
      for one, other in zip(session.run(variables), wanted):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@KINDS
def test_updates_that_are_fetched_one_by_one_travel_alone(use_resource):
  with tf.device(graphs.setter()):
    _, loss = layers(use_resource, 1)
    variables = tf.trainable_variables()
    for v, g in zip(variables, tf.gradients(loss, variables)):
      v.assign_sub(0.1 * g)
    assert graph_packing.pack_graph() == (2, 1, 0, 0)  # each needs both values


@KINDS
def test_a_run_without_an_update_moves_what_it_did(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    x, loss = layers(use_resource)
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.device(WORKER):
      one = tf.reduce_max(tf.trainable_variables()[0])  # as of a summary
    graph_packing.pack_graph()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      assert [len(graphs.received(session, one)[WORKER])] == [1]
      session.run(tf.trainable_variables()[0])


@KINDS
def test_what_one_update_does_not_need_may_be_uninitialised(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    x, first = layers(use_resource, 1, "first")
    _, second = layers(use_resource, 1, "second", x)
    opt = tf.train.GradientDescentOptimizer(0.1)
    update, _ = opt.minimize(first), opt.minimize(second)
    packed = graph_packing.pack_graph()
    init = tf.variables_initializer([
      v for v in tf.global_variables() if v.op.name.startswith("first")])
    missing = tf.report_uninitialized_variables()
    with cluster.session() as session:
      session.run(init)
      session.run([update, first], {x: [[1, 2, 3]]})
      assert [name.decode() for name in session.run(missing)] == ["second0/w", "second0/b"]
  assert packed == (4, 2, 4, 2)


@KINDS
def test_fed_values_of_variables_and_constants_count(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    w, b = (graphs.variable(name, [2], use_resource) for name in "wb")
    value, other, again = w.read_value(), b.read_value(), b.read_value()
    with tf.device(WORKER):
      rate = tf.constant(0.5)
      loss = tf.reduce_sum(value * other) + 0.0 * tf.reduce_sum(again)
    opt = tf.train.GradientDescentOptimizer(rate)
    update = opt.apply_gradients(zip(tf.gradients(loss, [value, other]), [w, b]))
    assert graph_packing.pack_graph() == (2, 1, 2, 1)
    init = tf.global_variables_initializer()
    with BoundedSession(cluster.target(0), config=cluster.config("/job:ps", WORKER)) as session:
      session.run(init)
      assert session.run(loss, {value: [3.0, 4.0], other: [1.0, 2.0]}) == 11.0
      session.run(update, {value.name: [3.0, 4.0], rate: 1.0})
      np.testing.assert_allclose(session.run(b), [0.0 - 3.0, 0.01 - 4.0])
      call = session.make_callable(loss, [value, other])
      assert call([3.0, 4.0], [1.0, 2.0]) == 11.0


def test_towers_of_one_client_have_messages_of_their_own(cluster):
  other = "/job:worker/task:1"
  with cluster.graph():
    with tf.device(graphs.setter(worker=WORKER)):
      x, loss = layers(True, 2)
    tf.get_variable_scope().reuse_variables()
    with tf.device(graphs.setter(worker=other)):
      _, second = layers(True, 2, inputs=x)
    opt = tf.train.GradientDescentOptimizer(0.1)
    with tf.device(graphs.setter()):
      update = tf.group(*[
        opt.minimize(one, colocate_gradients_with_ops=True) for one in (loss, second)])
    packed = graph_packing.pack_graph()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      received = graphs.received(session, update, {x: [[1, 2, 3]]})
  assert packed == (8, 2, 8, 2)
  assert [len(received[other]), len(received[WORKER])] == [2, 1]  # x comes from the client's worker


def test_a_branch_or_loop_keeps_its_messages(cluster):
  with cluster.graph(), tf.device(graphs.setter()):
    x, loss = layers(True, 1)
    opt = tf.train.GradientDescentOptimizer(0.1)
    pairs = opt.compute_gradients(loss)
    doubled = tf.while_loop(lambda i, _: i < 2, lambda i, sum_: (i + 1, 2 * sum_), [0, loss])[1]
    update = tf.cond(loss > 0, lambda: opt.apply_gradients(pairs), tf.no_op)
    graph_packing.pack_graph()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      session.run([update, doubled], {x: [[1, 2, 3]]})


def test_elements_that_another_update_takes_stay_where_they_are(cluster):
  """A run of one optimizer takes nothing from the iterator of the other."""
  with cluster.graph(), tf.device(graphs.setter()):
    losses = []
    for name in ("one", "two"):
      with tf.device(WORKER):
        queue = tf.queue.FIFOQueue(9, tf.float32, [3])
        fill = queue.enqueue_many([tf.ones([4, 3])])
        x = queue.dequeue_many(1)
      losses.append((queue, fill, layers(True, 1, name, x)[1]))
    opt = tf.train.GradientDescentOptimizer(0.1)
    updates = [opt.minimize(loss) for _, _, loss in losses]
    tf.group(*updates)
    graph_packing.pack_graph()
    sizes = [queue.size() for queue, _, _ in losses]
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run([init, *[fill for _, fill, _ in losses]])
      session.run(updates[0])
      assert session.run(sizes) == [3, 4]


@pytest.mark.parametrize("pack_bytes", [0, 8])
def test_nothing_is_packed_without_a_threshold(pack_bytes):
  with tf.device(graphs.setter()):
    _, loss = layers(True)
    tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    assert graph_packing.pack_graph(pack_bytes) == NOTHING
