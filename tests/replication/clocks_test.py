from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.replication import session_ops
from tf1ps.replication.clocks import ACTIVE, CLOCK_AWAY, EXPECTED, JOINING, Clocks, View


class Replica(object):
  """A replica with a graph and a session of its own; its step adds 1 to the global step."""

  def __init__(self, target, index, container, use_resource=True):
    with tf.Graph().as_default() as graph, graph.container(container):
      step = tf.get_variable("step", initializer=tf.zeros([], tf.int64), use_resource=use_resource,
                             trainable=False)
      self.clocks = Clocks(step, 3, index)
      self._advanced = self.clocks.advance(tf.assign_add(step, 1).op)
      self._clears = session_ops.clear_ops(tf.get_default_graph())
      self._initialise = step.initializer
      self.kept = [v.op.name for v in tf.global_variables()]
      self.session = tf.Session(target)

  def clear(self):
    self.session.run(self._initialise)
    self.session.run(self._clears)

  def join(self):
    return self.clocks.join(self.session)

  def step(self, count=1):
    for _ in range(count):
      found = self.session.run(self._advanced)
    return found.tolist()[:3]

  def look(self):
    return self.clocks.look(self.session)


@pytest.fixture(scope="module")
def target():
  return tf.train.Server.create_local_server().target


@pytest.mark.parametrize("use_resource", [True, False])
def test_clocks_count_steps_and_who_comes_late_begins_with_the_slowest(target, use_resource):
  first, second, third = [
    Replica(target, i, "late%d" % use_resource, use_resource) for i in range(3)]
  first.clear()
  assert first.look() == View([0, 0, 0], [EXPECTED] * 3)
  first.join()
  assert first.step(5) == [5, 0, 0]
  assert second.join() == View([5, 5, 0], [ACTIVE, ACTIVE, EXPECTED])
  second.step(2)
  first.step(7)
  assert third.join() == View([12, 7, 7], [ACTIVE] * 3)
  assert [third.look().lead(i) for i in range(3)] == [5, 0, 0]
  assert third.step() == [12, 7, 8]
  assert first.kept == ["step"]  # no checkpoint has the clocks


def test_who_leaves_or_is_dropped_is_not_counted(target):
  replicas = [Replica(target, i, "leaves") for i in range(3)]
  replicas[0].clear()
  for replica in replicas:
    replica.join()
  first, second, third = replicas
  first.step(4)
  second.step(1)
  second.clocks.leave(second.session)
  assert first.look() == View([4, 1, 0], [ACTIVE, CLOCK_AWAY, ACTIVE])
  first.clocks.drop(first.session, 2)
  assert first.look() == View([4, 1, 0], [ACTIVE, CLOCK_AWAY, CLOCK_AWAY])
  assert first.look().lead(0) == 0
  # The dropped one is alive after all; the other one has left for good, also in a later session.
  assert third.join() == View([4, 1, 4], [ACTIVE, CLOCK_AWAY, ACTIVE])
  first.clear()
  assert second.join() == View([0, 0, 0], [EXPECTED, CLOCK_AWAY, EXPECTED])


def test_a_lead_is_over_the_slowest_that_counts():
  view = View([7, 3, 0], [ACTIVE, ACTIVE, EXPECTED])
  assert [view.lead(0), view.lead(1), view.lead(2)] == [7, 3, -3]
  assert [view.lead(0, [ACTIVE]), view.lead(1, [ACTIVE])] == [4, -4]
  # One that joins may be a step behind what is allowed, for a moment, and is no one's lead.
  view = View([7, 5, 4], [ACTIVE, ACTIVE, JOINING])
  assert [view.lead(0), view.lead(0, [ACTIVE, JOINING])] == [2, 3]
  assert View([7, 3], [ACTIVE, CLOCK_AWAY]).lead(0) == 0


def test_another_index_is_refused():
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    for index in (-1, 3):
      with pytest.raises(ValueError, match="index must be 0 to 2, got %d" % index):
        Clocks(step, 3, index)
