from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tf1ps.cluster import session as session_lib
from tf1ps.pipeline import unfilled_queues


@pytest.fixture(autouse=True)
def own_graph():
  with tf.Graph().as_default():
    yield


def queue(name, shared_name=None):
  return tf.FIFOQueue(9, tf.float32, [[]], shared_name=shared_name, name=name)


def find(*fetches):
  return unfilled_queues.find(tf.get_default_graph(), fetches)


def test_one_whose_runner_was_not_added():
  forgotten, filled = queue("forgotten"), queue("filled")
  runners = [tf.train.QueueRunner(one, [one.enqueue(1.0)]) for one in (forgotten, filled)]
  tf.train.add_queue_runner(runners[1])
  total = forgotten.dequeue_many(2) + filled.dequeue()
  assert find({"loss": total, "none": None}, "Const:0") == ["forgotten"]
  assert find({"caller": [total], tf.train.SessionRunHook(): None}) == ["forgotten"]
  tf.train.add_queue_runner(runners[0])
  assert find(total) == []


def test_what_another_client_or_the_run_itself_may_fill():
  shared, own = queue("one", shared_name="shared"), queue("two")
  put, taken = own.enqueue(1.0), own.dequeue()
  assert find(shared.dequeue(), put, taken) == []
  assert find(taken) == ["two"]
  assert find(own.size()) == []


def test_a_run_that_lasts_is_told_once(set_timing, caplog):
  set_timing(session_lib, long_run=0.5)
  forgotten = queue("forgotten")
  taken, put = forgotten.dequeue(), forgotten.enqueue(7.0)
  found = []
  step = tf.train.get_or_create_global_step()
  # Each asks for something in every run.
  hooks = [tf.train.StopAtStepHook(last_step=9), tf.train.FinalOpsHook(step)]
  hooks[1].before_run = lambda run_context: tf.train.SessionRunArgs(step)
  with tf1ps.MonitoredTrainingSession(hooks=hooks) as session:
    thread = threading.Thread(target=lambda: found.append(session.run(taken)))
    thread.start()
    harness.wait_until(lambda: "waits for the queue forgotten" in caplog.text)
    session.run(put)
    thread.join()
  assert found == [7]
  assert caplog.text.count("waits for the queue") == 1
