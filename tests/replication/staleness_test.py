"""Ages of gradients: measured, used by the policies, and counted on the ps."""
from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.replication.nodes import WORKERS
from tf1ps.replication import staleness
from tf1ps.training import optimizer_table, optimizers

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

AGES = [0, 3, 1, 2, 17, 0]  # updates that others make while a gradient is computed
RATE = 0.5
PLACES = ["/job:ps/task:0", WORKERS[1]]  # the first keeps the global step


@pytest.mark.parametrize("use_resource", [True, False])
def test_the_age_is_how_many_updates_came_between(use_resource):
  with tf.Graph().as_default(), tf.Session() as session:
    step = tf.get_variable("step", initializer=tf.zeros([], tf.int64), use_resource=use_resource,
                           trainable=False)
    others = tf.placeholder(tf.int64, [])
    begun = staleness.begin_gradient_age(step)
    with tf.control_dependencies([begun]):
      between = tf.assign_add(step, others)
    with tf.control_dependencies([between]):
      own = tf.assign_add(step, 1)
    age = staleness.gradient_age(step, begun, own.op)
    session.run(step.initializer)
    assert [session.run(age, {others: n}) for n in (0, 3, 0, 1, 17)] == [0, 3, 0, 1, 17]


def test_ages_are_collected():
  ages = staleness.Ages()
  assert str(ages) == "staleness 0.0 (0 at most)"
  for age in (0, 2, 2, 3):
    ages.add(age)
  assert (ages.gradients, ages.mean, ages.highest) == (4, 1.75, 3)
  assert str(ages) == "staleness 1.8 (3 at most)"
  histogram = ages.histogram()
  assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0, 3, 4, 7)
  assert list(histogram.bucket_limit) == [0.5, 2.5, 3.5] and list(histogram.bucket) == [1, 2, 1]
  assert histogram.sum_squares == 17


def test_ages_that_were_counted_elsewhere():
  ages = staleness.Ages({0: 1, 5: 2})
  assert (ages.gradients, ages.total, ages.highest) == (3, 10, 5)




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
      self.age = staleness.age_at_push(self.step, begun, found)
      rate = staleness.damped_learning_rate(RATE, self.age) if damping else RATE
      pairs = list(zip(found, self.variables))
      if max_staleness is None:
        self.train_op = make_optimizer(rate).apply_gradients(pairs, self.step)
        self.taken = tf.constant(True)
      else:
        self.train_op, self.taken = staleness.apply_unless_older(
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


@pytest.mark.parametrize("name", optimizer_table.OPTIMIZERS)
def test_every_optimizer_takes_a_rate_that_is_lowered(name):
  found = []
  for lowered in (True, False):
    with tf.Graph().as_default(), tf.Session() as session:
      age = tf.placeholder(tf.int64, [])
      rate = staleness.damped_learning_rate(RATE, age) if lowered else RATE / 4
      w = tf.get_variable("w", initializer=1.0)
      train_op = optimizers.make_optimizer(name, rate).minimize(w * w / 2)
      session.run(tf.global_variables_initializer())
      for _ in range(2):
        session.run(train_op, {age: 4})
      found.append(session.run(w))
  assert found[0] == pytest.approx(found[1], rel=1e-6) and found[0] < 1


@pytest.mark.usefixtures("control_flow_of_programs")
def test_a_gradient_as_old_as_zero_may_be_asked_for_and_less_not():
  with tf.Graph().as_default():
    w, step = tf.get_variable("w", initializer=1.0), tf.train.get_or_create_global_step()
    sgd, pairs = tf.train.GradientDescentOptimizer(1.0), [(tf.ones([]), w)]
    with pytest.raises(ValueError, match="max_staleness must be at least 0, got -1"):
      staleness.apply_unless_older(sgd, pairs, step, tf.zeros([], tf.int64), -1)
    applied = staleness.apply_unless_older(sgd, pairs, step, tf.zeros([], tf.int64), 0)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      assert session.run([applied.taken, applied.train_op])[0]
      assert session.run([w, step]) == [0.0, 1]


class Replica(object):
  """A replica with a graph and a session of its own, whose step has two halves."""

  def __init__(self, target, index, container, use_resource=True, max_staleness=None):
    with tf.Graph().as_default() as graph, graph.container(container):
      step = tf.get_variable("step", initializer=tf.zeros([], tf.int64), use_resource=use_resource,
                             trainable=False)
      self.init = step.initializer
      self.begun = staleness.begin_gradient_age(step)
      self.table = staleness.AgeTable(step, index)
      self.read_before = tf.placeholder(tf.int64, [])
      train_op = tf.assign_add(step, 1).op
      self.counted = self.table.count(
        staleness.gradient_age(step, self.read_before, train_op), max_staleness)
      self.kept = tf.global_variables() + tf.local_variables()
      self.session = tf.Session(target)

  def begin(self):
    """The first half: reads the global step."""
    self.value = self.session.run(self.begun)

  def end(self):
    """The second half: makes the update, and counts its age."""
    assert self.session.run(self.counted, {self.read_before: self.value}) is None

  def ages(self):
    return staleness.read_ages([self.session.run(self.table.read)])


@pytest.fixture(scope="module")
def target():
  return tf.train.Server.create_local_server().target


@pytest.mark.parametrize("use_resource", [True, False])
def test_each_replica_counts_its_own(target, use_resource):
  replicas = [Replica(target, i, "own%d" % use_resource, use_resource) for i in range(2)]
  first, second = replicas
  first.session.run(first.init)
  for replica in replicas:
    assert not replica.session.run(replica.table.is_initialized)
    replica.session.run(replica.table.reset)
    assert replica.session.run(replica.table.is_initialized)
    assert dict(replica.ages().counts) == {}
  second.begin()
  for _ in range(3):
    first.begin()
    first.end()
  first.begin()
  second.end()
  first.end()
  second.begin()
  second.end()
  assert dict(first.ages().counts) == {0: 3, 1: 1} and str(first.ages()) == (
    "staleness 0.2 (1 at most)")
  assert dict(second.ages().counts) == {3: 1, 0: 1} and second.ages().highest == 3
  both = staleness.read_ages([r.session.run(r.table.read) for r in replicas])
  assert dict(both.counts) == {0: 4, 1: 1, 3: 1} and (both.total, both.highest) == (4, 3)
  assert [v.op.name for v in first.kept] == ["step"]  # no checkpoint has the table
  first.session.run(first.table.reset)
  assert first.ages().gradients == 0 and second.ages().gradients == 2


@pytest.mark.parametrize("max_staleness, counts", [
  (None, {0: 1, 4094: 1, 4095: 2}), (4095, {0: 1, 4094: 1, 4095: 1}), (0, {0: 1})])
def test_the_last_count_has_all_above(target, max_staleness, counts):
  replica = Replica(target, 0, "above%s" % max_staleness, max_staleness=max_staleness)
  replica.session.run([replica.init, replica.table.reset])
  for age in (4094, 4095, 5000, -2):  # below 0: the ps came back with an older global step
    replica.begin()
    replica.value -= age
    replica.end()
  assert dict(replica.ages().counts) == counts


def test_an_index_below_0_is_refused():
  with tf.Graph().as_default(), pytest.raises(ValueError, match="index must be .*, got -1"):
    staleness.AgeTable(tf.train.get_or_create_global_step(), -1)


@pytest.mark.parametrize("policy", [False, True])
@pytest.mark.parametrize("use_resource", [True, False])
def test_nothing_more_travels_to_the_worker(nodes, use_resource, policy):
  worker = nodes.workers[0]
  with nodes.graph() as graph:
    with tf.device("/job:ps/task:0"):
      step = tf.get_variable("step", initializer=tf.zeros([], tf.int64), use_resource=use_resource,
                             trainable=False)
      w = tf.get_variable("w", initializer=1.0, use_resource=use_resource)
    with tf.device(worker.name):
      gradient = 2.0 * w
      begun = staleness.begin_gradient_age(step)
      with tf.control_dependencies([tf.identity(gradient)]):  # as moving averages do
        train_op = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(gradient, w)], step)
        if policy:
          age = staleness.age_at_push(step, begun, [gradient])
        else:
          age = staleness.gradient_age(step, begun, train_op)
        table = staleness.AgeTable(step, 0)
        counted = table.count(age, 2 if policy else None)
    with tf.Session("grpc://" + worker.address, graph=graph) as session:
      session.run([tf.global_variables_initializer(), table.reset])

      def sent(fetches):
        metadata = tf.RunMetadata()
        session.run(fetches, options=tf.RunOptions(output_partition_graphs=True),
                    run_metadata=metadata)
        return sorted(re.sub(b"^edge_[0-9]+_", b"", node.attr["tensor_name"].s)
                      for part in metadata.partition_graphs for node in part.node
                      if node.op == "_Send" and b"/job:worker" in node.attr["recv_device"].s)

      plain = sent([train_op, gradient])
      assert len(plain) >= 1
      assert sent([train_op, gradient, counted]) == plain
      assert len(sent([train_op, gradient, age])) > len(plain)  # which is why nobody fetches it
      assert sum(session.run(table.read)) == 1
