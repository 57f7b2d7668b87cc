from __future__ import annotations

import threading
import time
import traceback

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tf1ps.pipeline import feeding, queue_runners
from tf1ps.pipeline import shard as shard_lib

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

SESSIONS = [tf.train.MonitoredTrainingSession, tf1ps.MonitoredTrainingSession]


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    tf.train.create_global_step()
    yield graph


def share(**settings):
  return shard_lib.Shard(**dict(dict(batch_size=2, epochs=1), **settings))


def numbers(count=5):
  return lambda: iter(range(count))


def batches(tensors, make=tf.train.MonitoredSession, most=100):
  found = []
  with make() as session:
    while len(found) < most:
      found.append(tf.nest.map_structure(lambda value: value.tolist(), session.run(tensors)))
  return found


@pytest.mark.parametrize("make", SESSIONS)
def test_monitored_sessions_start_it_without_a_word(make):
  batch = feeding.feed(numbers(), tf.int32, [], batch_size=2)
  assert batch.shape.as_list() == [None] and batch.dtype == tf.int32
  assert batches(batch, make) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("starter", [tf.train.start_queue_runners,
                                     queue_runners.start_queue_runners])
def test_a_session_of_one_s_own_starts_it_like_any_queue_runner(starter):
  def pairs():
    for number in range(3):
      yield {"x": [number, number], "y": "n%d" % number}

  batch = feeding.feed(pairs, {"x": tf.float32, "y": tf.string}, {"x": [2], "y": []}, batch_size=2)
  with tf.Session() as session:
    coordinator = tf.train.Coordinator()
    threads = starter(session, coordinator)
    assert [session.run(batch)["y"].tolist() for _ in range(2)] == [[b"n0", b"n1"], [b"n2"]]
    with pytest.raises(tf.errors.OutOfRangeError):
      session.run(batch)
    coordinator.request_stop()
    coordinator.join(threads)
  assert not any(thread.is_alive() for thread in threads)


def test_whole_batches_and_shapes():
  batch = feeding.feed(lambda: [(np.zeros([3, 2]), [1, 2, 3])], (tf.float32, tf.int32),
                       ([None, 2], [None]))
  assert batch[0].shape.as_list() == [None, 2]
  assert batches(batch) == [([[0.0, 0.0]] * 3, [1, 2, 3])]


def test_drop_remainder_and_a_first_dimension_that_is_known():
  batch = feeding.feed(numbers(), tf.int32, [], batch_size=2, drop_remainder=True)
  assert batch.shape.as_list() == [2]
  assert batches(batch) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("settings, wanted", [
    (dict(index=1, count=2), [[1, 3]]),
    (dict(index=1, count=2, epochs=2), [[1, 3], [1, 3]]),
    (dict(index=1, count=2, policy="none"), [[0, 1], [2, 3], [4]]),
    (dict(mode="eval", epochs=3), [[0, 1], [2, 3], [4]]),
])
def test_workers_divide_the_elements(settings, wanted):
  mine = share(**settings)
  assert batches(feeding.feed(numbers(), tf.int32, [], 2, shard=mine)) == wanted
  shard_lib.check_asked(mine)


def test_a_generator_may_divide_by_itself():
  mine = share(index=1, count=3)
  batch = feeding.feed(lambda index, count: [10 * index, count], tf.int32, [], 2, shard=mine)
  assert batches(batch) == [[10, 3]]
  shard_lib.check_asked(mine)


def test_without_an_end_it_begins_again():
  batch = feeding.feed(numbers(3), tf.int32, [], 2, shard=share(epochs=None))
  assert batch.shape.as_list() == [2]
  assert batches(batch, most=4) == [[0, 1], [2, 0], [1, 2], [0, 1]]


def broken():
  yield 1
  yield 2
  raise KeyError("no such row: 17")  # line of the error


@pytest.mark.parametrize("make", SESSIONS)
def test_an_exception_reaches_the_consumer_after_what_came_before_it(make, caplog):
  batch = feeding.feed(broken, tf.int32, [], 1)
  found = []
  with pytest.raises(KeyError, match="no such row: 17") as caught:
    with make() as session:
      while not session.should_stop():
        found.append(session.run(batch).tolist())
  assert found == [[1], [2]]
  assert "# line of the error" in "".join(traceback.format_tb(caught.tb))
  assert "feeding_test.py:%d" % (broken.__code__.co_firstlineno + 3) in caplog.text


@pytest.mark.parametrize("error", [
    tf.errors.OutOfRangeError(None, None, "of its own"),
    tf.errors.AbortedError(None, None, "of its own")])
def test_what_would_look_like_an_end_does_not(error):
  def generator():
    yield 1
    raise error

  batch = feeding.feed(generator, tf.int32, [], 1)
  with pytest.raises(RuntimeError, match="the generator raised .*Error: of its own"):
    batches(batch)


def test_an_element_that_does_not_fit_is_named():
  batch = feeding.feed(lambda: [[1, 2], [1, 2, 3]], tf.int32, [2], 1)
  with pytest.raises(ValueError, match=r"element 1 of the generator must have the shape"):
    batches(batch)


@pytest.mark.parametrize("make", SESSIONS)
def test_a_generator_that_blocks_does_not_hold_up_the_end(make):
  never, waits = threading.Event(), threading.Event()

  def generator():
    yield 1
    waits.set()
    never.wait(harness.LIMIT)
    yield 2

  batch = feeding.feed(generator, tf.int32, [], 1)
  with make() as session:
    assert session.run(batch).tolist() == [1]
    assert waits.wait(harness.LIMIT)
    began = time.monotonic()
  assert time.monotonic() - began < 3.0  # 0.4 on a machine that has nothing else to do
  never.set()


def test_a_generator_that_waits_for_room_is_closed_at_the_end():
  closed = threading.Event()

  def generator():
    try:
      while True:
        yield 1
    finally:
      closed.set()

  batch = feeding.feed(generator, tf.int32, [], 1)
  assert batches(batch, most=3) == [[1]] * 3
  assert closed.wait(harness.LIMIT)


class FailOnce(tf.train.SessionRunHook):
  runs = 0

  def after_run(self, run_context, run_values):
    self.runs += 1
    if self.runs == 2:
      raise tf.errors.AbortedError(None, None, "gone")


@pytest.mark.parametrize("make", SESSIONS)
def test_a_recovered_session_begins_with_a_new_generator(make):
  batch = feeding.feed(numbers(), tf.int32, [], 2)
  assert batches(batch, lambda: make(hooks=[FailOnce()])) == [[0, 1], [0, 1], [2, 3], [4]]


def test_threads_are_made_once_for_a_session(graph):
  feeding.feed(numbers(), tf.int32, [], 2)
  runner, = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
  with tf.Session() as session:
    coordinator = tf.train.Coordinator()
    threads = runner.create_threads(session, coordinator, daemon=True)
    assert len(threads) == 1 and threads[0].daemon and not threads[0].is_alive()
    assert runner.create_threads(session, coordinator) == []
    coordinator.request_stop()
    threads[0].start()
    coordinator.join(threads)


def test_it_is_on_the_worker_under_tensorflow_s_setter(graph):
  with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:1")):
    batch = feeding.feed(numbers(), tf.int32, [], 2)
  for op in [batch.op, *batch.op.inputs[0].op.inputs, batch.op.inputs[0].op]:
    op = getattr(op, "op", op)
    assert op.device.startswith("/job:worker/task:1")


@pytest.mark.parametrize("arguments, error, message", [
    (dict(generator_fn=[1, 2]), TypeError, r"must be callable, .*got \[1, 2\]"),
    (dict(generator_fn=lambda x: x), TypeError, "no parameter, or two, .*it takes 1"),
    (dict(batch_size=0), ValueError, "batch_size must be an integer of at least 1, got 0"),
    (dict(capacity=0), ValueError, "capacity must be an integer of at least 1, got 0"),
    (dict(shapes=None), ValueError, "the number of dimensions of each shape must be known"),
])
def test_bad_input_is_refused(arguments, error, message):
  arguments = dict(dict(generator_fn=numbers(), dtypes=tf.int32, shapes=[], batch_size=2),
                   **arguments)
  with pytest.raises(error, match=message):
    feeding.feed(**arguments)


# Batches of Python values.


def made(elements, dtypes, shapes, size, drop_remainder=False):
  parts = feeding._components(dtypes, shapes, size is not None)
  return [[array.tolist() for array in batch] for batch in feeding._batches(
    elements, dtypes, parts, size, drop_remainder)]


def test_elements_are_stacked_and_the_last_batch_is_what_is_left():
  elements = [{"x": [i, i], "y": "n%d" % i} for i in range(3)]
  settings = {"x": tf.float32, "y": tf.string}, {"x": [2], "y": []}
  assert made(elements, *settings, size=2) == [
    [[[0.0, 0.0], [1.0, 1.0]], ["n0", "n1"]], [[[2.0, 2.0]], ["n2"]]]
  assert len(made(elements, *settings, size=2, drop_remainder=True)) == 1


def test_unknown_dimensions_are_padded():
  elements = [([[1, 2]], ["a"]), ([[3], [4]], ["b", "c"])]
  assert made(elements, (tf.int32, tf.string), ([None, None], [None]), 2) == [
    [[[[1, 2], [0, 0]], [[3, 0], [4, 0]]], [["a", b""], ["b", "c"]]]]


def test_whole_batches_stay_as_they_are():
  assert made([[1, 2], [3]], tf.int64, None, None) == [[[1, 2]], [[3]]]


@pytest.mark.parametrize("element, message", [
    (([1, 2, 3], 0), r"element 1 of the generator must have the shape \(2,?\), got \(3,\)"),
    (([1.5, 2.5], 0), "element 1 of the generator must be int32, got .*1.5.*float64"),
    ((["a", "b"], 0), "element 1 of the generator must be int32, got"),
    ([[1, 2]], "element 1 of the generator must be a tuple of 2, got"),
    (7, "element 1 of the generator must be a tuple of 2, got 7"),
])
def test_elements_of_another_structure_type_or_shape_are_named(element, message):
  good = ([1, 2], 0)
  with pytest.raises(ValueError, match=message):
    made([good, element], (tf.int32, tf.float32), ([2], []), 2)


@pytest.mark.parametrize("dtypes, shapes, message", [
    (tf.int32, None, "the number of dimensions of each shape must be known; got shapes None"),
    ((tf.int32, tf.int32), ([2],), r"shapes must be a tuple of 2, got \(\[2\],\)"),
    ({"x": tf.int32}, {"y": []}, r"shapes must be a dict of \['x'\]"),
])
def test_shapes_that_do_not_fit(dtypes, shapes, message):
  with pytest.raises(ValueError, match=message):
    feeding._components(dtypes, shapes, True)


def test_numbers_keep_their_kind_as_in_a_feed():
  assert made([1, np.float64(2.0)], tf.float32, [], 2) == [[[1.0, 2.0]]]
