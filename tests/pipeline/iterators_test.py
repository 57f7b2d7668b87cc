from __future__ import annotations

import logging

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.pipeline import iterators
from tf1ps.placement import device_setter


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    tf.train.get_or_create_global_step()
    yield graph


def numbers(start=0):
  return tf.data.Dataset.range(start, start + 3)


def taken(tensor, **kwargs):
  """What comes out of a session of ours until the data end."""
  found = []
  with tf1ps.MonitoredTrainingSession(**kwargs) as session:
    while not session.should_stop():
      found.append(session.run(tensor).tolist())
  return found


def one_shot():
  return tf.data.make_one_shot_iterator(numbers()).get_next()


def initializable():
  return tf.data.make_initializable_iterator(numbers()).get_next()


def reinitializable():
  iterator = tf.data.Iterator.from_structure(tf.int64, [])
  iterator.make_initializer(numbers())
  iterator.make_initializer(numbers(10))
  return iterator.get_next()


def captures_a_variable():
  one = tf.get_variable("one", [], tf.int64, initializer=tf.ones_initializer(), use_resource=True)
  local = tf.get_local_variable("two", [], tf.int64, use_resource=True,
                                initializer=tf.constant_initializer(2))
  dataset = tf.data.Dataset.range(0, 3, one * local - 1)
  return tf.data.make_initializable_iterator(dataset).get_next()


def reads_a_table():
  table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
    tf.constant([5, 6, 7], tf.int64), tf.constant([0, 1, 2], tf.int64)), -1)
  return tf.data.make_initializable_iterator(numbers(5).map(table.lookup)).get_next()


@pytest.mark.parametrize("make", [
  one_shot, initializable, reinitializable, captures_a_variable, reads_a_table])
def test_a_session_starts_it(make):
  assert taken(make()) == [0, 1, 2]


def test_sources_of_a_feedable_iterator_are_started():
  first, second = [tf.data.make_initializable_iterator(numbers(start)) for start in (0, 10)]
  handles = [first.string_handle(), second.string_handle()]
  fed = tf.placeholder(tf.string, [])
  record = tf.data.Iterator.from_string_handle(fed, tf.int64, []).get_next()
  with tf1ps.MonitoredTrainingSession() as session:
    one, two = session.run(handles)
    assert [session.run(record, {fed: handle}) for handle in (one, two, one)] == [0, 10, 1]


def test_what_the_local_init_op_starts_is_left_alone(graph):
  iterator = tf.data.Iterator.from_structure(tf.int64, [])
  iterator.make_initializer(numbers())
  second = iterator.make_initializer(numbers(10))
  tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, second)
  assert iterators.iterator_initializers(graph, tf.tables_initializer()) == []
  assert taken(iterator.get_next()) == [10, 11, 12]


def _start_fed(initializer, feed):
  def step_fn(step_context):
    step_context.session.run(initializer, feed)
  return step_fn


def test_what_must_be_fed_is_the_users(graph, caplog):
  count = tf.placeholder(tf.int64, [], "count")
  fed = tf.data.make_initializable_iterator(tf.data.Dataset.range(count))
  default = tf.placeholder_with_default(tf.constant(2, tf.int64), [])
  own = tf.data.make_initializable_iterator(tf.data.Dataset.range(default))
  with caplog.at_level(logging.INFO, "tf1ps"):
    assert iterators.iterator_initializers(graph) == [own.initializer]
  assert "is yours to initialise" in caplog.text and "needs count to be fed" in caplog.text
  record = fed.get_next()
  with tf1ps.MonitoredTrainingSession() as session:
    session.run_step_fn(_start_fed(fed.initializer, {count: 1}))
    assert session.run(record) == 0


def test_iterators_on_other_tasks_are_theirs(graph):
  with tf.device("/job:ps/task:0"):
    shared = tf.data.make_initializable_iterator(numbers(), shared_name="shared")
  with tf.device("/job:worker/task:1"):
    mine = tf.data.make_initializable_iterator(numbers())
  anywhere = tf.data.make_initializable_iterator(numbers())
  every = [shared.initializer, mine.initializer, anywhere.initializer]
  assert iterators.iterator_initializers(graph) == every
  assert iterators.iterator_initializers(graph, only_task="/job:worker/task:1") == every[1:]


def test_the_device_setter_leaves_all_of_it_on_the_worker(graph):
  with tf.device(device_setter.replica_device_setter(
      worker_device="/job:worker/task:1", cluster={"ps": ["a:1"], "worker": ["b:1", "c:1"]})):
    before = len(graph.get_operations())
    iterators.next_batch(numbers().map(lambda x: x + 1).shuffle(3).repeat().batch(2).prefetch(1))
    reinitializable()
  mine = graph.get_operations()[before:]
  assert {op.type for op in mine} >= {"IteratorV2", "MakeIterator", "MapDataset"}
  assert not [op.name for op in mine if "ps" in op.device]


@pytest.mark.parametrize("change, expected", [
  (lambda ds: ds.map(lambda x: 2 * x).batch(2), [[0, 2], [4]]),
  (lambda ds: ds.interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(2),
                            cycle_length=2).batch(2), [[0, 1], [0, 1], [2, 2]]),
  (lambda ds: ds.shuffle(1).repeat(2).batch(3), [[0, 1, 2], [0, 1, 2]]),
  (lambda ds: ds.map(tf.range).padded_batch(3, [None]).prefetch(1),
   [[[0, 0], [0, 0], [0, 1]]])])
def test_pipelines_in_memory(change, expected):
  assert taken(iterators.next_batch(change(numbers()))) == expected
