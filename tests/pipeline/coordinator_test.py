from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.pipeline import classic
from tf1ps.pipeline import queue_runners


@pytest.fixture(autouse=True)
def own_graph():
  with tf.Graph().as_default():
    yield


def test_a_loop_whose_runners_were_never_started_is_told(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 3)])
  coord = tf1ps.Coordinator()
  with classic.initialised() as session:
    with pytest.raises(RuntimeError, match="2 queue runners, such as that of .*input_producer, and "
                                           "none was started.*tf1ps.start_queue_runners"):
      while not coord.should_stop():
        session.run(batch)


def test_the_check_can_be_switched_off(tmp_path):
  classic.pipeline([classic.write(tmp_path / "a.csv", 3)])
  assert not tf1ps.Coordinator(check_queue_runners=False).should_stop()


@pytest.mark.parametrize("with_coord", [True, False])
@pytest.mark.parametrize("graph_first", [True, False])
def test_runners_that_tensorflow_starts_are_started(tmp_path, with_coord, graph_first):
  coord = None if graph_first else tf1ps.Coordinator()
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 3)])
  coord = coord or tf1ps.Coordinator()
  with classic.initialised() as session:
    threads = tf.train.start_queue_runners(session, coord if with_coord else None)
    found, error = classic.take_all(session, batch, coord)
    assert found == [1, 2, 3] and isinstance(error, tf.errors.OutOfRangeError)
    coord.request_stop()
    coord.join(threads)


def test_a_thread_of_the_users_own_may_come_before_the_runners(tmp_path):
  classic.pipeline([classic.write(tmp_path / "a.csv", 3)])
  coord = tf1ps.Coordinator()
  said = []
  thread = threading.Thread(target=lambda: said.append(coord.should_stop()))
  thread.start()
  thread.join()
  assert said == [False]


def test_a_graph_without_runners_and_another_graph():
  assert not tf1ps.Coordinator().should_stop()
  coord = tf1ps.Coordinator()
  with tf.Graph().as_default():
    queue = tf.FIFOQueue(5, tf.int32)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1)]))
    assert not coord.should_stop()


def test_join_alone_ends_when_a_runner_has_failed(tmp_path):
  classic.pipeline([classic.write(tmp_path / "a.csv", 3, bad=[2])])
  with classic.initialised() as session:
    coord = tf1ps.Coordinator()
    tf1ps.start_queue_runners(session, coord)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a.csv:2: "):
      coord.join()


def test_join_waits_for_a_thread_that_takes_what_there_is(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 9, bad=[9])])
  found = []
  with classic.initialised() as session:
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    harness.wait_until(lambda: queue_runners.failures_of(session).error is not None)

    def take():
      with coord.stop_on_exception():
        while not coord.should_stop():
          found.extend(session.run(batch).tolist())

    taker = threading.Thread(target=take)
    taker.start()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a.csv:9: "):
      coord.join(threads + [taker])
  assert found == list(range(1, 9))


def test_an_error_of_the_users_own_comes_first(tmp_path):
  classic.pipeline([classic.write(tmp_path / "a.csv", 9, bad=[1])])
  with classic.initialised() as session:
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    harness.wait_until(lambda: queue_runners.failures_of(session).error is not None)
    with coord.stop_on_exception():
      raise KeyError("own")
    with pytest.raises(KeyError, match="own"):
      coord.join(threads)


def test_a_thread_of_the_users_own_is_waited_for():
  coord = tf1ps.Coordinator()
  leave = threading.Event()
  thread = threading.Thread(target=leave.wait)
  thread.start()
  coord.register_thread(thread)
  coord.request_stop()
  with pytest.raises(RuntimeError, match="threads still running"):
    coord.join(stop_grace_period_secs=0.05)
  leave.set()
  thread.join()


def test_clean_stops_are_as_in_tensorflow():
  coord = tf1ps.Coordinator(clean_stop_exception_types=(StopIteration,))
  with coord.stop_on_exception():
    raise StopIteration
  coord.join()
  coord.clear_stop()
  with coord.stop_on_exception():
    raise tf.errors.OutOfRangeError(None, None, "no end here")
  with pytest.raises(tf.errors.OutOfRangeError):
    coord.join()
