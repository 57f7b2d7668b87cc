"""A thread for each replica: how they end, and who is told what."""
from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import session as session_lib
from tf1ps.replication import replica_threads

ReplicaThreads = replica_threads.ReplicaThreads


def test_each_replica_makes_its_steps_in_a_thread_of_its_own():
  seen = {"a": [], "b": []}
  with ReplicaThreads({name: lambda own=own: own.append(threading.current_thread().name)
                       for name, own in seen.items()}, num_steps=3) as threads:
    assert threads.wait(harness.LIMIT)
  assert threads.steps == {"a": 3, "b": 3}
  assert seen == {"a": ["tf1ps: replica a"] * 3, "b": ["tf1ps: replica b"] * 3}


def test_the_end_of_one_ones_data_is_not_the_others():
  left = [None] * 2

  def read():
    if not left:
      raise tf.errors.OutOfRangeError(None, None, "the data has ended")
    left.pop()

  with ReplicaThreads({"reads": read, "computes": lambda: None}, num_steps=5) as threads:
    assert threads.wait(harness.LIMIT)
  assert threads.steps == {"reads": 2, "computes": 5}


def test_stop_ends_threads_without_an_end():
  with ReplicaThreads({"a": lambda: None, "b": lambda: None}) as threads:
    harness.wait_until(lambda: min(threads.steps.values()) > 0)
    assert not threads.wait(0.0)
    threads.stop()
    assert threads.wait(harness.LIMIT)
  assert not any(thread.name.startswith("tf1ps: replica") for thread in threading.enumerate())


def test_the_first_error_stops_all_and_is_raised_with_the_replicas_name():
  begun, told = threading.Event(), []

  def fail():
    begun.wait(harness.LIMIT)
    raise KeyError("lost")

  with pytest.raises(replica_threads.ReplicaError) as raised:
    with ReplicaThreads({"good": begun.set, "bad": fail}, on_error=told.append) as threads:
      assert threads.wait(harness.LIMIT)
  assert str(raised.value) == "bad failed: KeyError: 'lost'" and raised.value.replica == "bad"
  assert told == [raised.value.__cause__] and isinstance(told[0], KeyError)


def test_an_error_frees_a_replica_that_is_blocked():
  with tf.Graph().as_default() as graph, session_lib.BoundedSession(graph=graph) as session:
    take = tf.FIFOQueue(1, tf.int32).dequeue()

    def fail():
      harness.wait_until(lambda: session.is_running)
      raise KeyError("lost")

    with pytest.raises(replica_threads.ReplicaError, match="^fails failed"):
      with ReplicaThreads({"waits": lambda: session.run(take), "fails": fail},
                          on_error=lambda error: session.abort(lambda: error)) as threads:
        assert threads.wait(harness.LIMIT)


def test_a_replica_that_does_not_end_its_step_is_named():
  free = threading.Event()
  try:
    with pytest.raises(replica_threads.ReplicasLeft) as raised:
      with ReplicaThreads({"quick": lambda: None, "stuck": free.wait}, 1, limit=0.1) as threads:
        threads._threads["quick"].join(harness.LIMIT)  # a busy machine may hold it up
    assert str(raised.value) == "stuck did not end a step within 0.1 s"
    assert raised.value.replicas == ["stuck"]
  finally:
    free.set()


def test_threads_start_again_with_each_session_but_for_ended_replicas():
  seen, count = [], iter(range(100))

  def read(session):
    seen.append(("reads", session))
    raise tf.errors.OutOfRangeError(None, None, "the data has ended")

  def compute(session):
    seen.append(("computes", session))
    return next(count)

  threads = ReplicaThreads({"reads": read, "computes": compute}, is_last=lambda n: n in (1, 3))
  for session in ("first", "second"):
    threads.start(session)
    assert threads.wait(harness.LIMIT) and threads.end() == []
  assert threads.ended == {"reads"} and not threads.have_ended and threads.error is None
  assert sorted(seen) == sorted(
    [("reads", "first")] + [("computes", "first")] * 2 + [("computes", "second")] * 2)
  assert threads.steps == {"reads": 0, "computes": 4}


def test_a_handled_error_ends_its_thread_alone():
  def fail(session):
    raise KeyError("gone") if session == "first" else ZeroDivisionError("bad")

  handled, free = [], threading.Event()
  threads = ReplicaThreads(
    {"bad": fail, "good": lambda session: free.wait(harness.LIMIT)},
    on_error=lambda error, session: handled.append((session, str(error))) or session == "first")
  threads.start("first")
  harness.wait_until(lambda: handled)
  assert threads.error is None and not threads.is_stopped
  free.set()
  threads.start("second")
  harness.wait_until(lambda: threads.error)
  assert threads.end() == [] and threads.is_stopped
  assert str(threads.error) == "bad failed: ZeroDivisionError: bad"
  assert handled == [("first", "'gone'"), ("second", "bad")]
  threads.start("first")  # a new start forgets the error
  assert threads.error is None and threads.end() == []


def test_a_thread_of_an_earlier_start_reports_no_error():
  free, begun = threading.Event(), threading.Event()

  def step(session):
    if session == "first":
      begun.set()
      free.wait(harness.LIMIT)
      raise KeyError("late")

  threads = ReplicaThreads({"a": step}, limit=0.1)
  threads.start("first")
  assert begun.wait(harness.LIMIT)
  late, = threads._threads.values()
  threads.start("second")
  free.set()
  late.join(harness.LIMIT)
  assert not late.is_alive() and threads.error is None
  threads._limit = harness.LIMIT
  assert threads.end() == []


def test_the_callers_own_error_comes_first():
  with pytest.raises(ZeroDivisionError):
    with ReplicaThreads({"a": lambda: {}["nothing"]}):
      raise ZeroDivisionError


@pytest.mark.parametrize("arguments, said", [
  (({},), "at least one replica, got none"),
  (({"a": print}, -1), "num_steps must be 0 or more, got -1"),
  (({"a": print}, 1, None, 0), "limit must be above 0 seconds, got 0"),
])
def test_arguments_are_checked(arguments, said):
  with pytest.raises(ValueError, match=said):
    ReplicaThreads(*arguments)
