from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import bad_records, datasets, iterator_positions, iterators
from tf1ps.pipeline.shard import Shard


class Pipeline(object):
  """A pipeline in a graph and a session of its own."""

  def __init__(self, make):
    with tf.Graph().as_default() as graph:
      tf.set_random_seed(7)
      self._batch = make()
      self.positions = iterator_positions.IteratorPositions(graph)
      self.session = tf.Session(graph=graph)
      self.session.run(iterators.iterator_initializers(graph))

  def draw(self, count):
    return [self.session.run(self._batch).tolist() for _ in range(count)]

  def save(self):
    return self.positions.save(self.session)

  def restore(self, position):
    self.positions.restore(self.session, position)


def numbers(count=100):
  return iterators.next_batch(
    tf.data.Dataset.range(count).map(lambda x: x + 1).repeat().batch(3).prefetch(2))


def lines(tmp_path, skips=False, **kwargs):
  for index in range(2):
    (tmp_path / ("%d.txt" % index)).write_text("\n".join(
      str(100 * index + number) for number in range(50)) + ("\nx" if skips else ""))

  def make():
    bad_records.use_bad_records(bad_records.BadRecords("skip" if skips else "fail", 0.5))
    return datasets.text_line_dataset(Shard(batch_size=4), str(tmp_path / "*.txt"),
                               lambda values: tf.strings.to_number(values, tf.int32), **kwargs)
  return make


def test_it_goes_on_where_it_was():
  first, second = Pipeline(numbers), Pipeline(numbers)
  assert first.draw(2) == [[1, 2, 3], [4, 5, 6]]
  position = first.save()
  expected = first.draw(3)
  assert expected[0] == [7, 8, 9]
  second.draw(5)
  second.restore(position)
  assert second.draw(3) == expected
  second.restore(position)
  assert second.draw(1) == expected[:1]


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


def test_the_digest_tells_pipelines_apart(tmp_path):
  def digest(make):
    return Pipeline(make).positions.digest

  assert digest(numbers) == digest(numbers)
  assert digest(lambda: numbers(99)) != digest(numbers)
  one = digest(lines(tmp_path, shuffle=10))
  assert one == digest(lines(tmp_path, shuffle=10)) != digest(lines(tmp_path, shuffle=11))


def test_pipelines_that_call_python_have_none():
  def make():
    return iterators.next_batch(tf.data.Dataset.range(9).batch(3).map(
      lambda x: tf.numpy_function(lambda y: y, [x], tf.int64)))

  positions = Pipeline(make).positions
  assert positions.calls_python and not positions.are_there


def test_no_iterators():
  positions = Pipeline(lambda: tf.constant(1)).positions
  assert not positions.are_there and not positions.calls_python


def test_what_cannot_be_restored_begins_anew():
  pipeline = Pipeline(numbers)
  pipeline.draw(2)
  with pytest.raises(iterator_positions.PositionError):
    pipeline.restore(b"3\nabcdef")
  assert pipeline.draw(1) == [[1, 2, 3]]
