from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import lease_table, record_positions
from tf1ps.pipeline import leases as leases_lib
from tf1ps.state import control

E = lease_table.EPOCH


class Table:
  """The table of all workers, in this process."""

  def __init__(self, count, epochs=1):
    self.state = lease_table.LeaseState.new("", count, epochs)
    self.is_silent = False
    self._lock = threading.Lock()

  def change(self, function):
    with self._lock:
      if self.is_silent:
        raise control.ControlError("silent")
      return function(self.state)


class Reader:
  """A worker's pipeline, in a session."""

  def __init__(self, leases, table):
    self.leases = leases
    with tf.Graph().as_default() as graph:
      options = tf.data.Options()
      if hasattr(options.experimental_optimization, "inject_prefetch"):  # reads ahead
        options.experimental_optimization.inject_prefetch = False
      dataset = leases.dataset().with_options(options)
      iterator = tf.data.make_initializable_iterator(dataset)
      self._initializer, self._next = iterator.initializer, iterator.get_next()
    self.session = tf.Session(graph=graph)
    leases.begin_session(table.change)
    self.begin()

  def begin(self):
    self.session.run(self._initializer)

  def next(self):
    return int(self.session.run(self._next))

  def remainder(self):
    found = []
    with pytest.raises(tf.errors.OutOfRangeError):
      while True:
        found.append(self.next())
    return found


@pytest.fixture
def reader():
  """Makes readers."""
  made = []

  def make(table, owner=0, **kwargs):
    made.append(Reader(leases_lib.WorkerLeases(owner, **kwargs), table))
    return made[-1]

  yield make
  for one in made:
    one.leases.end()
    one.session.close()


def test_ranges_are_leased_when_they_are_read_and_done_when_trained(reader):
  table = Table(3)
  one = reader(table)
  assert one.next() == 0
  assert table.state.value["out"] == {"0": [0, 0]}
  assert one.next() == 1
  one.leases.note_trained(0, 5, is_done=False)
  one.leases.note_trained(0, 5, is_done=True)
  one.leases.note_trained(1, 3, is_done=False)
  assert one.leases.held() == [1]
  assert one.remainder() == [2]
  assert table.state.value["out"] == {"1": [0, 3], "2": [0, 0]}
  one.leases.finish_pass()
  assert table.state.is_done
  assert not one.leases.begin_pass()


def test_records_report_their_ranges_in_any_epoch(reader):
  """A record's position has 14 bits for the epoch."""
  table = Table(1, epochs=None)
  table.state.value["next"] = (record_positions.MAX_EPOCHS - 1) * E
  one = reader(table)
  for _ in range(2):
    with tf.Graph().as_default(), tf.Session() as session:
      reported = session.run(record_positions.source_of(
        record_positions.first_position(tf.constant(one.next(), tf.int64)) + 5))
    one.leases.note_trained(reported, 6, is_done=True)
    assert one.leases.held() == []


def test_two_workers_share(reader):
  table = Table(4)
  one, two = reader(table), reader(table, owner=1)
  found = [one.next(), two.next(), one.next(), two.next()]
  assert found == [0, 1, 2, 3]
  assert one.remainder() == two.remainder() == []


def test_another_pass_reads_returned_ranges(reader):
  table = Table(3)
  one, two = reader(table), reader(table, owner=1)
  assert one.next() == 0
  assert two.remainder() == [1, 2]
  two.leases.finish_pass()
  assert one.remainder() == []
  table.change(lambda state: state.return_leases(0))
  assert two.leases.begin_pass()
  two.begin()
  assert two.remainder() == [0]


def test_a_pipeline_that_ends_early_returns_its_leases(reader):
  table = Table(3)
  one = reader(table)
  assert one.next() == 0
  one.leases.note_trained(0, 4, is_done=False)
  assert not one.leases.finish_pass()
  assert table.state.value["back"] == [0] and table.state.repeated_examples == 4
  assert one.remainder() == []


def test_a_worker_that_leaves_reports_finished_ranges_and_returns_the_others(reader):
  table = Table(3)
  one, two = reader(table), reader(table, owner=1)
  assert [one.next(), one.next()] == [0, 1]
  one.leases.note_trained(0, 4, is_done=True)
  one.leases.release()
  assert one.remainder() == []
  assert two.remainder() == [1, 2]
  assert two.leases.finish_pass()
  assert table.state.is_done


def test_a_new_session_begins_without_leases(reader):
  table = Table(3)
  one = reader(table)
  assert [one.next(), one.next()] == [0, 1]
  one.leases.note_trained(0, 4, is_done=False)
  one.leases.begin_session(table.change)
  assert table.state.value["out"] == {}
  assert one.remainder() == []  # of the old iterator
  one.begin()
  assert one.remainder() == [0, 1, 2]


def test_a_pass_may_end_with_its_epoch(reader):
  table = Table(2, epochs=2)
  one = reader(table)
  one.leases.by_epoch = True
  assert one.remainder() == [0, 1]
  one.leases.finish_pass()
  assert one.leases.begin_pass()
  one.begin()
  assert one.remainder() == [E, E + 1]


def test_a_seed_gives_each_epoch_an_order_that_all_workers_know(reader):
  table = Table(10, epochs=2)
  one = reader(table, seed=1)
  found = one.remainder()
  assert sorted(found[:10]) == list(range(10))
  assert sorted(found[10:]) == [E + i for i in range(10)]
  assert [f % E for f in found[:10]] != [f % E for f in found[10:]] != list(range(10))
  again = reader(Table(10, epochs=2), owner=3, seed=1)
  assert again.remainder() == found
  one.leases.finish_pass()
  assert table.state.is_done


def test_a_table_that_is_silent_for_a_while_is_waited_for(reader):
  table = Table(2)
  one = reader(table)
  table.is_silent = True
  thread = threading.Timer(0.3, lambda: setattr(table, "is_silent", False))
  thread.start()
  assert one.remainder() == [0, 1]
  thread.join()


def test_a_lease_whose_answer_was_lost_is_granted_again(reader):
  table = Table(3)
  one = reader(table)
  table.change(lambda state: state.grant(0))  # the answer is lost
  assert one.next() == 0  # it was returned before
  assert one.remainder() == [1, 2]


@pytest.fixture
def build():
  """Makes (Blocks, leases, session, the next record) of a dataset, in a graph of its own."""
  made = []

  def make(make_dataset, size, table, shuffle=None, seed=None, transform=lambda dataset: dataset):
    leases = leases_lib.WorkerLeases(0, seed)
    with tf.Graph().as_default() as graph:
      blocks = leases_lib.Blocks(make_dataset(), size, leases, shuffle)
      iterator = tf.data.make_initializable_iterator(transform(blocks.dataset))
      batch = iterator.get_next()
    session = tf.Session(graph=graph)
    made.append((leases, session))
    table.state.value["count"] = blocks.count(session)
    leases.begin_session(table.change)
    session.run(iterator.initializer)
    return blocks, leases, session, batch

  yield make
  for leases, session in made:
    leases.end()
    session.close()


def numbers(count):
  return lambda: tf.data.Dataset.from_tensor_slices(np.arange(count, dtype=np.int64))


def remainder(session, batch):
  found = []
  with pytest.raises(tf.errors.OutOfRangeError):
    while True:
      found.append(session.run(batch).tolist())
  return found


@pytest.mark.parametrize("make_dataset", [
  numbers(23), lambda: numbers(46)().filter(lambda number: number < 23)])
def test_all_records_come_and_are_counted(build, make_dataset):
  table = Table(0)
  blocks, leases, session, batch = build(make_dataset, 10, table)
  assert (blocks.records, table.state.value["count"]) == (23, 3)
  assert remainder(session, batch) == list(range(23))
  blocks.trained(15)
  assert leases.held() == [1, 2]
  blocks.trained(5)
  blocks.trained(2)
  assert leases.held() == [2]
  blocks.trained(1)
  assert leases.held() == []
  leases.finish_pass()
  assert table.state.is_done


def test_shuffled_blocks_come_in_another_order_and_are_shuffled_in_themselves(build):
  _, _, session, batch = build(numbers(60), 10, Table(0), shuffle=100, seed=1)
  found = remainder(session, batch)
  assert sorted(found) == list(range(60)) != found
  parts = [found[first:first + 10] for first in range(0, 60, 10)]
  firsts = [part[0] // 10 for part in parts]
  assert sorted(firsts) == list(range(6)) != firsts
  assert all(number // 10 == first for part, first in zip(parts, firsts) for number in part)
  assert any(part != sorted(part) for part in parts)


def test_a_dataset_without_an_end_is_refused(build):
  with pytest.raises(leases_lib.EndlessDatasetError, match="Call shard.dataset before repeat"):
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
