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
    assert threads.wait(10.0)
  assert threads.steps == {"a": 3, "b": 3}
  assert seen == {"a": ["tf1ps: replica a"] * 3, "b": ["tf1ps: replica b"] * 3}


def test_the_end_of_one_ones_data_is_not_the_others():
  left = [None] * 2

  def read():
    if not left:
      raise tf.errors.OutOfRangeError(None, None, "the data has ended")
    left.pop()

  with ReplicaThreads({"reads": read, "computes": lambda: None}, num_steps=5) as threads:
    assert threads.wait(10.0)
  assert threads.steps == {"reads": 2, "computes": 5}


def test_stop_ends_threads_without_an_end():
  with ReplicaThreads({"a": lambda: None, "b": lambda: None}) as threads:
    harness.wait_until(lambda: min(threads.steps.values()) > 0)
    assert not threads.wait(0.0)
    threads.stop()
    assert threads.wait(10.0)
  assert not any(thread.name.startswith("tf1ps: replica") for thread in threading.enumerate())


def test_the_first_error_stops_all_and_is_raised_with_the_replicas_name():
  begun, told = threading.Event(), []

  def fail():
    begun.wait(10.0)
    raise KeyError("lost")

  with pytest.raises(replica_threads.ReplicaError) as raised:
    with ReplicaThreads({"good": begun.set, "bad": fail}, on_error=told.append) as threads:
      assert threads.wait(10.0)
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
        assert threads.wait(30.0)


def test_who_does_not_end_its_step_is_named():
  free = threading.Event()
  try:
    with pytest.raises(replica_threads.ReplicasLeft) as raised:
      with ReplicaThreads({"quick": lambda: None, "stuck": free.wait}, limit=0.1):
        pass
    assert str(raised.value) == "stuck did not end a step within 0.1 s"
    assert raised.value.replicas == ["stuck"]
  finally:
    free.set()


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
