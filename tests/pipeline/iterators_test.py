from __future__ import annotations

import contextlib
import logging
import tempfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.pipeline import datasets, graph_input, iterators, shard
from tf1ps.pipeline.bad_records import BadRecords
from tf1ps.placement import device_setter

pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
TUNES = hasattr(tf.data.Options(), "autotune")


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
  # As tf.train.Scaffold takes it: whatever a session runs.
  several = [tf.no_op(), {"tensor": tf.constant(1), "iterator": second}]
  assert iterators.iterator_initializers(graph, several) == []
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
  assert "needs a feed of count, so tf1ps does not initialise it" in caplog.text
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


# Autotuning.


def enabled(dataset):
  return dataset.options().autotune.enabled if TUNES else False


def test_nothing_that_is_made_of_it_is_tuned():
  dataset = iterators.without_autotuning(tf.data.Dataset.range(3)).map(lambda x: x + 1).prefetch(1)
  assert enabled(dataset) is False


def test_a_share_is_not_tuned():
  share = shard.Shard(mode="train", index=0, count=2, batch_size=1)
  assert enabled(share.dataset(tf.data.Dataset.range(3))) is False


@pytest.mark.parametrize("ask", [
  lambda share: share.dataset(tf.data.Dataset.range(3)),
  lambda share: share.files([__file__])], ids=["blocks", "files"])
def test_leased_data_are_not_tuned(ask):
  with tf.Graph().as_default():
    share = shard.Shard(mode="train", index=0, count=2, batch_size=1, policy="dynamic")
    assert enabled(ask(share)) is False


@pytest.mark.skipif(not TUNES, reason="TensorFlow 1.15 has no such option")
def test_what_the_program_says_later_wins():
  options = tf.data.Options()
  options.autotune.enabled = True
  dataset = iterators.without_autotuning(tf.data.Dataset.range(3))
  assert enabled(dataset.with_options(options)) is True


# Python calls.


def in_map():
  return numbers().map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))


def from_generator():
  return tf.data.Dataset.from_generator(lambda: iter(range(3)), tf.int64)


@pytest.mark.parametrize("make, expected", [
  (numbers, False), (lambda: numbers().map(lambda x: x + 1), False), (in_map, True),
  (lambda: numbers().interleave(lambda x: in_map(), cycle_length=1), True),
  (from_generator, True)])
@pytest.mark.parametrize("iterator", [
  tf.data.make_one_shot_iterator, tf.data.make_initializable_iterator])
def test_a_pipeline_that_calls_python_is_known(make, expected, iterator):
  with tf.Graph().as_default() as graph:
    iterator(make()).get_next()
    assert iterators.has_python_calls(graph) == expected


def test_one_of_the_graphs_own_operations():
  with tf.Graph().as_default() as graph:
    tf.py_func(lambda: np.float32(1), [], tf.float32)
    assert iterators.has_python_calls(graph)


# Positions.


class Pipeline(object):
  """A pipeline in a graph and a session of its own."""

  def __init__(self, make):
    with tf.Graph().as_default() as graph:
      tf.set_random_seed(7)
      self._batch = make()
      self.positions = iterators.IteratorPositions(graph)
      self.session = tf.Session(graph=graph)
      self.session.run(iterators.iterator_initializers(graph))

  def draw(self, count):
    return [self.session.run(self._batch).tolist() for _ in range(count)]

  def save(self):
    return self.positions.save(self.session)

  def restore(self, position):
    self.positions.restore(self.session, position)


def number_batches(count=100):
  return iterators.next_batch(
    tf.data.Dataset.range(count).map(lambda x: x + 1).repeat().batch(3).prefetch(2))


def lines(tmp_path, skips=False, **kwargs):
  for index in range(2):
    (tmp_path / ("%d.txt" % index)).write_text("\n".join(
      str(100 * index + number) for number in range(50)) + ("\nx" if skips else ""))

  def make():
    graph_input.use_bad_records(BadRecords("skip" if skips else "fail", 0.5))
    return datasets.text_line_dataset(shard.Shard(batch_size=4), str(tmp_path / "*.txt"),
                               lambda values: tf.strings.to_number(values, tf.int32), **kwargs)
  return make


def test_it_goes_on_where_it_was():
  first, second = Pipeline(number_batches), Pipeline(number_batches)
  assert first.draw(2) == [[1, 2, 3], [4, 5, 6]]
  position = first.save()
  expected = first.draw(3)
  assert expected[0] == [7, 8, 9]
  second.draw(5)
  second.restore(position)
  assert second.draw(3) == expected
  second.restore(position)
  assert second.draw(1) == expected[:1]


@pytest.mark.slow
@pytest.mark.parametrize("skips, kwargs", [
  (False, {}), (False, {"shuffle": 30}), (True, {}), (True, {"shuffle": 30}),
  (False, {"shuffle": 30, "num_parallel_decodes": 2})])
def test_readers_of_files_go_on_too(tmp_path, skips, kwargs):
  make = lines(tmp_path, skips, **kwargs)
  first, second = Pipeline(make), Pipeline(make)
  first.draw(9)
  position = first.save()
  expected = first.draw(12)
  second.restore(position)
  assert second.draw(12) == expected


@pytest.mark.slow
def test_the_digest_tells_pipelines_apart(tmp_path):
  def digest(make):
    return Pipeline(make).positions.digest

  assert digest(number_batches) == digest(number_batches)
  assert digest(lambda: number_batches(99)) != digest(number_batches)
  one = digest(lines(tmp_path, shuffle=10))
  assert one == digest(lines(tmp_path, shuffle=10)) != digest(lines(tmp_path, shuffle=11))


def test_pipelines_that_call_python_have_none():
  def make():
    return iterators.next_batch(tf.data.Dataset.range(9).batch(3).map(
      lambda x: tf.numpy_function(lambda y: y, [x], tf.int64)))

  positions = Pipeline(make).positions
  assert positions.calls_python and not positions.can_save


def test_no_iterators():
  positions = Pipeline(lambda: tf.constant(1)).positions
  assert not positions.can_save and not positions.calls_python


def test_what_cannot_be_restored_begins_anew():
  pipeline = Pipeline(number_batches)
  pipeline.draw(2)
  with pytest.raises(iterators.PositionError):
    pipeline.restore(b"3\nabcdef")
  assert pipeline.draw(1) == [[1, 2, 3]]


@pytest.mark.parametrize("by", ["python", "tensorflow"])
def test_a_position_that_cannot_be_written_or_read_is_a_position_error(tmp_path, monkeypatch, by):
  pipeline = Pipeline(number_batches)
  position = pipeline.save()
  (tmp_path / "file").write_text("")
  if by == "python":
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
  else:
    monkeypatch.setattr(iterators, "temporary_directory", lambda purpose: (
      contextlib.nullcontext(str(tmp_path / "file"))))
  pipeline.draw(2)
  with pytest.raises(iterators.PositionError):
    pipeline.save()
  assert pipeline.draw(1) == [[7, 8, 9]]
  with pytest.raises(iterators.PositionError):
    pipeline.restore(position)
  assert pipeline.draw(1) == [[1, 2, 3]]


def test_a_large_position_is_not_kept(monkeypatch):
  pipeline = Pipeline(lambda: iterators.next_batch(
    tf.data.Dataset.range(1000).map(
      lambda x: tf.random.stateless_uniform([4096], [x, 1])).shuffle(200).batch(3)))
  pipeline.draw(1)
  assert len(pipeline.save()) > 200 * 4096
  monkeypatch.setattr(iterators, "MOST_BYTES", 1 << 20)
  with pytest.raises(iterators.PositionError, match="it takes . MB, .* at most 1 MB are kept"):
    pipeline.save()
