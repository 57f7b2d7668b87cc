"""Replicas of this process, each with a graph, a session and a thread, on a server they share."""
from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.replication import clocks as clocks_lib
from tf1ps.replication import lead_hook, session_ops


@pytest.fixture(scope="module")
def target():
  return tf.train.Server.create_local_server().target


class Creator(tf.train.SessionCreator):
  def __init__(self, target, initialise):
    self._target = target
    self._initialise = initialise

  def create_session(self):
    session = tf.Session(self._target)
    for operation in self._initialise:
      session.run(operation)
    return session


class Replica(object):
  """Makes so many steps in a thread, each when its `gate` is open."""

  def __init__(self, target, container, index, steps, max_lead=2, **kwargs):
    self.index, self.gate, self.error = index, threading.Semaphore(0), None
    self._steps, self._target = steps, target
    self._graph = tf.Graph()
    with self._graph.as_default(), self._graph.container(container):
      step = tf.train.get_or_create_global_step()
      self._clocks = clocks_lib.Clocks(step, 3, index)
      self._train_op = tf.assign_add(step, 1).op
      self.hook = lead_hook.LeadHook(
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
    self._thread.join(20.0)
    assert not self._thread.is_alive() and self.error is None


def test_nobody_is_further_ahead_of_the_slowest_than_allowed(target):
  first = Replica(target, "bound", 0, 30).start()
  second, third = [Replica(target, "bound", i, 4).start() for i in (1, 2)]
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
  assert first.look() == clocks_lib.View([30, 4, 4], [clocks_lib.CLOCK_AWAY] * 3)
  assert first.hook.highest == 2 and first.hook.seconds > 0
  assert max(second.hook.highest, third.hook.highest) <= 2


def test_who_joins_waits_for_those_that_have_not(target):
  first = Replica(target, "joins", 0, 3).start()
  for _ in range(3):
    first.gate.release()
  first.wait_for([2, 0, 0])
  second = Replica(target, "joins", 1, 1).start()
  second.gate.release()
  second.wait_for([2, 2, 0])  # beside the first one, and as far ahead of the third one as allowed
  third = Replica(target, "joins", 2, 1).start()
  third.gate.release()
  for replica in (first, second, third):
    replica.join()
  assert first.hook.highest == 2 and second.hook.highest <= 2
  assert second.hook.seconds > 0  # before its first step


def test_who_does_not_join_in_time_is_not_waited_for(target, caplog):
  first = Replica(target, "late", 0, 20, max_lead=1, start_timeout=0.5).start(free=True)
  first.join()
  found = sorted(record.getMessage() for record in caplog.records if "nobody" in record.message)
  assert len(found) == 2
  assert found[0].startswith("replica 1 has not begun within ")
  assert found[0].endswith(" s: nobody waits for it any more") and "replica 2" in found[1]


def test_where_not_all_are_expected_nobody_waits_for_who_has_not_joined(target):
  first = Replica(target, "alone", 0, 20, max_lead=1, expects_all=False).start(free=True)
  first.join()
  assert first.hook.highest == 0 and first.hook.seconds == 0


def test_who_was_dropped_by_mistake_joins_again(target, caplog):
  first = Replica(target, "mistake", 0, 3, expects_all=False).start()
  second = Replica(target, "mistake", 1, 2, expects_all=False).start()
  for _ in range(2):
    first.gate.release()
  first.wait_for([2, 0, 0])
  with tf.Session(target, first._graph) as session:
    first._clocks.drop(session, 1)
  second.gate.release()
  second.wait_for([2, 2, 0])
  assert second.look().standings[:2] == [clocks_lib.ACTIVE] * 2
  assert "it joins again" in caplog.text
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
  first = Replica(target, "told", 0, 3, max_lead=1).start()
  told = threading.Event()
  first.hook.on_join(Lifecycle(told))
  for _ in range(3):
    first.gate.release()
  first.wait_for([1, 0, 0])
  told.set()
  first.join()


@pytest.mark.parametrize("kwargs, text", [
  (dict(max_lead=0), "max_lead must be at least 1, got 0"),
  (dict(start_timeout=0.0), "start_timeout must be a positive number of seconds, got 0.0")])
def test_limits_that_make_no_sense_are_refused(target, kwargs, text):
  with pytest.raises(ValueError, match=text):
    Replica(target, "refused", 0, 1, **kwargs)
