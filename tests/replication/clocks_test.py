"""The clocks of replicas, and the bound of the lead; replicas of this process share a server."""
from __future__ import annotations

import re
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.replication import clocks as clocks_lib
from tf1ps.replication import session_ops
from tf1ps.replication.clocks import (
  ACTIVE,
  CLOCK_LEFT,
  EXPECTED,
  JOINING,
  Clocks,
  ClocksView,
  LeadHook,
)


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
def test_clocks_count_steps_and_a_late_replica_begins_with_the_slowest(target, use_resource):
  first, second, third = [
    Replica(target, i, "late%d" % use_resource, use_resource) for i in range(3)]
  first.clear()
  assert first.look() == ClocksView([0, 0, 0], [EXPECTED] * 3)
  first.join()
  assert first.step(5) == [5, 0, 0]
  assert second.join() == ClocksView([5, 5, 0], [ACTIVE, ACTIVE, EXPECTED])
  second.step(2)
  first.step(7)
  assert third.join() == ClocksView([12, 7, 7], [ACTIVE] * 3)
  assert [third.look().lead(i) for i in range(3)] == [5, 0, 0]
  assert third.step() == [12, 7, 8]
  assert first.kept == ["step"]  # no checkpoint has the clocks


def test_a_replica_that_leaves_or_is_dropped_does_not_count(target):
  replicas = [Replica(target, i, "leaves") for i in range(3)]
  replicas[0].clear()
  for replica in replicas:
    replica.join()
  first, second, third = replicas
  first.step(4)
  second.step(1)
  second.clocks.leave(second.session)
  assert first.look() == ClocksView([4, 1, 0], [ACTIVE, CLOCK_LEFT, ACTIVE])
  first.clocks.drop(first.session, 2)
  assert first.look() == ClocksView([4, 1, 0], [ACTIVE, CLOCK_LEFT, CLOCK_LEFT])
  assert first.look().lead(0) == 0
  # The dropped one is alive after all; the other one has left for good, also in a later session.
  assert third.join() == ClocksView([4, 1, 4], [ACTIVE, CLOCK_LEFT, ACTIVE])
  first.clear()
  assert second.join() == ClocksView([0, 0, 0], [EXPECTED, CLOCK_LEFT, EXPECTED])


def test_a_lead_is_over_the_slowest_that_counts():
  view = ClocksView([7, 3, 0], [ACTIVE, ACTIVE, EXPECTED])
  assert [view.lead(0), view.lead(1), view.lead(2)] == [7, 3, -3]
  assert [view.lead(0, [ACTIVE]), view.lead(1, [ACTIVE])] == [4, -4]
  # One that joins may be a step behind what is allowed, for a moment, and is no one's lead.
  view = ClocksView([7, 5, 4], [ACTIVE, ACTIVE, JOINING])
  assert [view.lead(0), view.lead(0, [ACTIVE, JOINING])] == [2, 3]
  assert ClocksView([7, 3], [ACTIVE, CLOCK_LEFT]).lead(0) == 0


def test_another_index_is_refused():
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    for index in (-1, 3):
      with pytest.raises(ValueError, match="index must be 0 to 2, got %d" % index):
        Clocks(step, 3, index)


# The bound of the lead.

class Creator(tf.train.SessionCreator):
  def __init__(self, target, initialise):
    self._target = target
    self._initialise = initialise

  def create_session(self):
    session = tf.Session(self._target)
    for operation in self._initialise:
      session.run(operation)
    return session


class ThreadReplica(object):
  """Makes so many steps in a thread, each when its `gate` is open."""

  def __init__(self, target, container, index, steps, max_lead=2, **kwargs):
    self.index, self.gate, self.error = index, threading.Semaphore(0), None
    self._steps, self._target = steps, target
    self._graph = tf.Graph()
    with self._graph.as_default(), self._graph.container(container):
      step = tf.train.get_or_create_global_step()
      self._clocks = Clocks(step, 3, index)
      self._train_op = tf.assign_add(step, 1).op
      self.hook = LeadHook(
        self._clocks, self._clocks.advance(self._train_op), max_lead, **kwargs)
      # The first replica is the chief.
      self._initialise = [
        step.initializer, session_ops.clear_ops(self._graph)] if index == 0 else []
    self._thread = threading.Thread(target=self._run, daemon=True)

  def start(self, free=False):
    if free:
      self.gate.release()
    self._free = free
    self._thread.start()
    harness.wait_until(lambda: self.error or self.hook._coord is not None)
    return self

  def _run(self):
    try:
      creator = Creator(self._target, self._initialise)
      with self._graph.as_default(), tf.train.MonitoredSession(creator, [self.hook]) as session:
        for _ in range(self._steps):
          self.gate.acquire()
          session.run(self._train_op)
          if self._free:
            self.gate.release()
    except BaseException as error:
      self.error = error
      raise

  def look(self):
    with tf.Session(self._target, self._graph) as session:
      return self._clocks.look(session)

  def wait_for(self, clocks):
    harness.wait_until(lambda: self.look().clocks == clocks, what="the clocks %s, not %s" % (
      clocks, self.look()))

  def join(self):
    self._thread.join(harness.LIMIT)
    assert not self._thread.is_alive() and self.error is None


def test_no_replica_is_further_ahead_of_the_slowest_than_allowed(target):
  first = ThreadReplica(target, "bound", 0, 30).start()
  second, third = [ThreadReplica(target, "bound", i, 4).start() for i in (1, 2)]
  first._free = True
  first.gate.release()
  first.wait_for([2, 0, 0])
  second.gate.release()
  second.wait_for([2, 1, 0])  # the third one is still at 0
  third.gate.release()
  first.wait_for([3, 1, 1])
  for replica in (second, third) * 3:
    replica.gate.release()
  second.join()
  third.join()
  first.join()  # the others have left, and it makes the rest of its steps alone
  assert first.look() == ClocksView([30, 4, 4], [CLOCK_LEFT] * 3)
  assert first.hook.highest == 2 and first.hook.seconds > 0
  assert max(second.hook.highest, third.hook.highest) <= 2


def test_a_long_wait_for_one_that_makes_no_step_is_reported(target, caplog, set_timing):
  set_timing(clocks_lib, reminder_interval=0.05)
  first = ThreadReplica(target, "stuck", 0, 3).start()
  second, third = [ThreadReplica(target, "stuck", i, 1).start() for i in (1, 2)]
  for _ in range(3):
    first.gate.release()
  second.gate.release()
  harness.wait_until(lambda: any(
    "for a step of replica 2, because it may be at most 2 steps ahead" in record.getMessage()
    for record in caplog.records))
  third.gate.release()
  for replica in (second, third, first):
    replica.join()


def test_one_that_makes_no_step_is_dropped_at_the_limit_and_joins_again(
    target, caplog, set_timing):
  set_timing(clocks_lib, heartbeat_interval=0.05)
  first = ThreadReplica(target, "stands", 0, 20, max_lead=1, end_timeout=0.5).start(free=True)
  second, third = [ThreadReplica(target, "stands", i, 1).start() for i in (1, 2)]
  first.join()
  found = sorted(record.getMessage() for record in caplog.records
                 if "do not wait" in record.message)
  assert [re.sub("for .* s", "for N s", line) for line in found] == [
    "replica %d has made no step for N s (end_timeout): the others do not wait for it any "
    "more" % i for i in (1, 2)]
  for replica in (second, third):
    replica.gate.release()
    replica.join()
  assert caplog.text.count("It joins them again") == 2


def test_a_replica_that_joins_waits_for_those_that_have_not(target):
  first = ThreadReplica(target, "joins", 0, 3).start()
  for _ in range(3):
    first.gate.release()
  first.wait_for([2, 0, 0])
  second = ThreadReplica(target, "joins", 1, 1).start()
  second.gate.release()
  second.wait_for([2, 2, 0])  # beside the first one, and as far ahead of the third one as allowed
  third = ThreadReplica(target, "joins", 2, 1).start()
  third.gate.release()
  for replica in (first, second, third):
    replica.join()
  assert first.hook.highest == 2 and second.hook.highest <= 2
  assert second.hook.seconds > 0  # before its first step


def test_a_replica_that_does_not_join_in_time_is_dropped(target, caplog):
  first = ThreadReplica(target, "late", 0, 20, max_lead=1, start_timeout=0.5).start(free=True)
  first.join()
  found = sorted(record.getMessage() for record in caplog.records
                 if "do not wait" in record.message)
  assert len(found) == 2
  assert found[0].startswith("replica 1 has not joined within ")
  assert found[0].endswith(" s: the others do not wait for it any more") and "replica 2" in found[1]


def test_without_expecting_all_no_replica_waits_for_one_that_has_not_joined(target):
  first = ThreadReplica(target, "alone", 0, 20, max_lead=1, expects_all=False).start(free=True)
  first.join()
  assert first.hook.highest == 0 and first.hook.seconds == 0


def test_a_replica_that_was_dropped_by_mistake_joins_again(target, caplog):
  first = ThreadReplica(target, "mistake", 0, 3, expects_all=False).start()
  second = ThreadReplica(target, "mistake", 1, 2, expects_all=False).start()
  for _ in range(2):
    first.gate.release()
  first.wait_for([2, 0, 0])
  with tf.Session(target, first._graph) as session:
    first._clocks.drop(session, 1)
  second.gate.release()
  second.wait_for([2, 2, 0])
  assert second.look().states[:2] == [ACTIVE] * 2
  assert "It joins them again" in caplog.text
  for replica in (first, second):
    replica.gate.release()
    replica.join()


class Lifecycle(object):
  """Stands for the lifecycle of a session that an event signals."""

  def __init__(self, event):
    self._event = event

  @property
  def signum(self):
    return 15 if self._event.is_set() else None


def test_a_wait_ends_after_a_signal(target):
  stop = threading.Event()
  first = ThreadReplica(target, "stop", 0, 3, max_lead=1).start()
  first.hook.on_join(Lifecycle(stop))
  for _ in range(3):
    first.gate.release()
  first.wait_for([1, 0, 0])
  stop.set()
  first.join()


@pytest.mark.parametrize("kwargs, text", [
  (dict(max_lead=0), "max_lead must be at least 1, got 0"),
  (dict(start_timeout=0.0), "start_timeout must be a positive number of seconds, got 0.0"),
  (dict(end_timeout=-1.0), "end_timeout must be a positive number of seconds, got -1.0")])
def test_limits_that_make_no_sense_are_refused(target, kwargs, text):
  with pytest.raises(ValueError, match=text):
    ThreadReplica(target, "refused", 0, 1, **kwargs)
