from __future__ import annotations

import re

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.replication import age_table, stale_gradients, staleness


class Replica(object):
  """A replica with a graph and a session of its own, whose step has two halves."""

  def __init__(self, target, index, container, use_resource=True, max_staleness=None):
    with tf.Graph().as_default() as graph, graph.container(container):
      step = tf.get_variable("step", initializer=tf.zeros([], tf.int64), use_resource=use_resource,
                             trainable=False)
      self.init = step.initializer
      self.begun = staleness.begin_gradient_age(step)
      self.table = age_table.AgeTable(step, index)
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
    return age_table.read_ages([self.session.run(self.table.read)])


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
  both = age_table.read_ages([r.session.run(r.table.read) for r in replicas])
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
    age_table.AgeTable(tf.train.get_or_create_global_step(), -1)


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
          age = stale_gradients.age_at_push(step, begun, [gradient])
        else:
          age = staleness.gradient_age(step, begun, train_op)
        table = age_table.AgeTable(step, 0)
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
