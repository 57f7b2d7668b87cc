from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import session as session_lib
from tf1ps.program import contract as program
from tf1ps.training import remainder


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


class CountedRuns:
  """A session after so many runs of which less than a second is left of a limit of a minute.

  Until then the clock of `remainder` stands, which this class stands in for, too.
  """

  def __init__(self, session, count, left):
    self._session, self._count, self._left = session, count, left

  def run(self, *args, **kwargs):
    self._count -= 1
    return self._session.run(*args, **kwargs)

  def monotonic(self):
    return 0.0 if self._count > 0 else harness.LIMIT - self._left

  def count_by(self, remainder_left, monkeypatch):
    monkeypatch.setattr(remainder, "time", self)
    return remainder_left.count(self, limit=harness.LIMIT)


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


def test_data_without_an_end_are_counted_for_as_long_as_the_limit(monkeypatch):
  left = remainder_of(tf.data.Dataset.from_tensors(np.zeros([7])).repeat())
  with tf.Session() as session:
    session.run(left.note)
    found = CountedRuns(session, 9, 0.0).count_by(left, monkeypatch)
  assert not found.is_all and found.undrawn == 8 * 7  # the first run reads the size of a batch
  assert str(found).endswith(", at least %d were left" % found.undrawn)


def test_data_that_do_not_come_are_given_up(monkeypatch):
  queue = tf.queue.FIFOQueue(10, [tf.float32], shapes=[[]])
  batch = queue.dequeue_up_to(2)
  left = remainder.Remainder(tf.shape(batch)[0])
  with tf.Session() as session:
    session.run(queue.enqueue_many(tf.zeros([6])))
    session.run(left.note)
    # The first two batches have their time, on a busy machine; the third does not come.
    found = CountedRuns(session, 3, 0.5).count_by(left, monkeypatch)
  assert found == remainder.Left(drawn=2, undrawn=4, is_all=False)


def test_an_input_that_sits_in_python_is_left_behind(monkeypatch):
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
    found = CountedRuns(session, 2, 0.5).count_by(left, monkeypatch)
    free.set()
  assert found == remainder.Left(drawn=2, undrawn=2, is_all=False)
