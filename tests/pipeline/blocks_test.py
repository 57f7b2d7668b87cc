from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.pipeline.claims_test import Table
from tf1ps.pipeline import blocks as blocks_lib
from tf1ps.pipeline import claims as claims_lib


@pytest.fixture
def build():
  """Makes (Blocks, claims, session, the next record) of a dataset, in a graph of its own."""
  made = []

  def make(make_dataset, size, table, shuffle=None, seed=None, transform=lambda dataset: dataset):
    claims = claims_lib.Claims(0, seed)
    with tf.Graph().as_default() as graph:
      blocks = blocks_lib.Blocks(make_dataset(), size, claims, shuffle)
      iterator = tf.data.make_initializable_iterator(transform(blocks.dataset))
      batch = iterator.get_next()
    session = tf.Session(graph=graph)
    made.append((claims, session))
    table.ranges.value["count"] = blocks.count(session)
    claims.begin_session(table.change)
    session.run(iterator.initializer)
    return blocks, claims, session, batch

  yield make
  for claims, session in made:
    claims.end()
    session.close()


def numbers(count):
  return lambda: tf.data.Dataset.from_tensor_slices(np.arange(count, dtype=np.int64))


def rest(session, batch):
  found = []
  with pytest.raises(tf.errors.OutOfRangeError):
    while True:
      found.append(session.run(batch).tolist())
  return found


@pytest.mark.parametrize("make_dataset", [
  numbers(23), lambda: numbers(46)().filter(lambda number: number < 23)])
def test_all_records_come_and_are_counted(build, make_dataset):
  table = Table(0)
  blocks, claims, session, batch = build(make_dataset, 10, table)
  assert (blocks.records, table.ranges.value["count"]) == (23, 3)
  assert rest(session, batch) == list(range(23))
  blocks.trained(15)
  assert claims.in_order() == [1, 2]
  blocks.trained(5)
  blocks.trained(2)
  assert claims.in_order() == [2]
  blocks.trained(1)
  assert claims.in_order() == []
  claims.drained()
  assert table.ranges.are_done


def test_shuffled_blocks_come_in_another_order_and_are_shuffled_in_themselves(build):
  _, _, session, batch = build(numbers(60), 10, Table(0), shuffle=100, seed=1)
  found = rest(session, batch)
  assert sorted(found) == list(range(60)) != found
  parts = [found[first:first + 10] for first in range(0, 60, 10)]
  firsts = [part[0] // 10 for part in parts]
  assert sorted(firsts) == list(range(6)) != firsts
  assert all(number // 10 == first for part, first in zip(parts, firsts) for number in part)
  assert any(part != sorted(part) for part in parts)


def test_a_dataset_without_an_end_is_refused(build):
  with pytest.raises(blocks_lib.EndlessError, match="give it the data once, without repeat"):
    build(lambda: numbers(3)().repeat(), 10, Table(0))


@pytest.mark.parametrize("transform, is_kept", [
  (lambda dataset: dataset.map(lambda x: x + 1, num_parallel_calls=2).batch(5).prefetch(1), True),
  (lambda dataset: dataset.padded_batch(5, []), True),
  (lambda dataset: dataset.batch(5).map(lambda x: tf.concat([x, x], 0)), False),
  (lambda dataset: dataset.shuffle(5).batch(5), False),
  (lambda dataset: dataset.filter(lambda x: x > 3).batch(5), False),
  (lambda dataset: dataset.flat_map(lambda x: tf.data.Dataset.from_tensors(x).repeat(2)), False),
])
def test_what_keeps_the_order_is_known(build, transform, is_kept):
  blocks, _, _, _ = build(numbers(20), 10, Table(0), transform=transform)
  assert blocks.order_is_kept() == is_kept
