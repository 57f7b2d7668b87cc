from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import session as session_lib
from tf1ps.program import contract as program
from tf1ps.training import remainder


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def remainder_of(dataset):
  size = program.batch_size_of(tf.data.make_one_shot_iterator(dataset).get_next())
  return remainder.Remainder(size)


def test_what_is_left_is_counted():
  left = remainder_of(tf.data.Dataset.from_tensor_slices(np.zeros([14, 2])).batch(4))
  with tf.Session() as session:
    session.run(left.note)
    found = left.count(session)
    assert found == remainder.Left(drawn=4, undrawn=10, is_all=True)  # 4, 4 and 2
    assert str(found) == "4 of its examples were drawn without an update, 10 were left"
    # The data have ended.
    assert left.count(session) == remainder.Left(drawn=4, undrawn=0, is_all=True)


def test_the_last_batch_may_be_the_one_that_was_drawn():
  left = remainder_of(tf.data.Dataset.from_tensor_slices(np.zeros([5])).batch(3))
  with tf.Session() as session:
    for _ in range(2):
      session.run(left.note)
    assert left.count(session) == remainder.Left(drawn=2, undrawn=0, is_all=True)


def test_data_without_an_end_are_counted_for_as_long_as_the_limit():
  left = remainder_of(tf.data.Dataset.from_tensors(np.zeros([7])).repeat())
  with tf.Session() as session:
    session.run(left.note)
    found = left.count(session, limit=0.3)
  assert not found.is_all and found.undrawn > 0 and found.undrawn % 7 == 0
  assert str(found).endswith(", at least %d were left" % found.undrawn)


def test_data_that_do_not_come_are_given_up():
  queue = tf.queue.FIFOQueue(10, [tf.float32], shapes=[[]])
  batch = queue.dequeue_up_to(2)
  left = remainder.Remainder(tf.shape(batch)[0])
  with tf.Session() as session:
    session.run(queue.enqueue_many(tf.zeros([6])))
    session.run(left.note)
    assert left.count(session, limit=1.0) == remainder.Left(drawn=2, undrawn=4, is_all=False)


def test_an_input_that_sits_in_python_is_left_behind():
  free = threading.Event()
  calls = []

  def hold(batch):
    calls.append(batch)
    if len(calls) == 3:
      free.wait(600.0)  # longer than this test may take
    return batch

  dataset = tf.data.Dataset.from_tensor_slices(np.zeros([14], np.float32)).batch(2).map(
    lambda batch: tf.numpy_function(hold, [batch], tf.float32))
  left = remainder_of(dataset)
  with session_lib.BoundedSession("") as session:
    session.run(left.note)
    assert left.count(session, limit=1.0) == remainder.Left(drawn=2, undrawn=2, is_all=False)
    free.set()
