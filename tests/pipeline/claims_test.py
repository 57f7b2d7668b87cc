from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import claims as claims_lib
from tf1ps.pipeline import ranges as ranges_lib
from tf1ps.state import control

E = ranges_lib.EPOCH


class Table:
  """The table of all workers, in this process."""

  def __init__(self, count, epochs=1):
    self.ranges = ranges_lib.Ranges.new("", count, epochs)
    self.is_silent = False
    self._lock = threading.Lock()

  def change(self, function):
    with self._lock:
      if self.is_silent:
        raise control.ControlError("silent")
      return function(self.ranges)


class Reader:
  """A worker's pipeline, in a session."""

  def __init__(self, claims, table):
    self.claims = claims
    with tf.Graph().as_default() as graph:
      options = tf.data.Options()
      if hasattr(options.experimental_optimization, "inject_prefetch"):  # reads ahead
        options.experimental_optimization.inject_prefetch = False
      dataset = claims.dataset().with_options(options)
      iterator = tf.data.make_initializable_iterator(dataset)
      self._initializer, self._next = iterator.initializer, iterator.get_next()
    self.session = tf.Session(graph=graph)
    claims.begin_session(table.change)
    self.begin()

  def begin(self):
    self.session.run(self._initializer)

  def next(self):
    return int(self.session.run(self._next))

  def rest(self):
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
    made.append(Reader(claims_lib.Claims(owner, **kwargs), table))
    return made[-1]

  yield make
  for one in made:
    one.claims.end()
    one.session.close()


def test_ranges_are_claimed_when_they_are_read_and_done_when_trained(reader):
  table = Table(3)
  one = reader(table)
  assert one.next() == 0
  assert table.ranges.value["out"] == {"0": [0, 0]}
  assert one.next() == 1
  one.claims.note_trained(0, 5, is_done=False)
  one.claims.note_trained(0, 5, is_done=True)
  one.claims.note_trained(1, 3, is_done=False)
  assert one.claims.in_order() == [1]
  assert one.rest() == [2]
  assert table.ranges.value["out"] == {"1": [0, 3], "2": [0, 0]}
  one.claims.drained()
  assert table.ranges.are_done
  assert not one.claims.begin_pass()


def test_two_workers_share(reader):
  table = Table(4)
  one, two = reader(table), reader(table, owner=1)
  found = [one.next(), two.next(), one.next(), two.next()]
  assert found == [0, 1, 2, 3]
  assert one.rest() == two.rest() == []


def test_another_pass_reads_what_came_back(reader):
  table = Table(3)
  one, two = reader(table), reader(table, owner=1)
  assert one.next() == 0
  assert two.rest() == [1, 2]
  two.claims.drained()
  assert one.rest() == []
  table.change(lambda ranges: ranges.give_back(0))
  assert two.claims.begin_pass()
  two.begin()
  assert two.rest() == [0]


def test_a_pipeline_that_ends_by_itself_gives_back_what_it_held(reader):
  table = Table(3)
  one = reader(table)
  assert one.next() == 0
  one.claims.note_trained(0, 4, is_done=False)
  assert not one.claims.drained()
  assert table.ranges.value["back"] == [0] and table.ranges.again == 4
  assert one.rest() == []


def test_who_leaves_tells_what_is_done_and_gives_back_the_rest(reader):
  table = Table(3)
  one, two = reader(table), reader(table, owner=1)
  assert [one.next(), one.next()] == [0, 1]
  one.claims.note_trained(0, 4, is_done=True)
  one.claims.give_back()
  assert one.rest() == []
  assert two.rest() == [1, 2]
  assert two.claims.drained()
  assert table.ranges.are_done


def test_a_new_session_begins_with_nothing(reader):
  table = Table(3)
  one = reader(table)
  assert [one.next(), one.next()] == [0, 1]
  one.claims.note_trained(0, 4, is_done=False)
  one.claims.begin_session(table.change)
  assert table.ranges.value["out"] == {}
  assert one.rest() == []  # of the old iterator
  one.begin()
  assert one.rest() == [0, 1, 2]


def test_a_pass_may_end_with_its_epoch(reader):
  table = Table(2, epochs=2)
  one = reader(table)
  one.claims.by_epoch = True
  assert one.rest() == [0, 1]
  one.claims.drained()
  assert one.claims.begin_pass()
  one.begin()
  assert one.rest() == [E, E + 1]


def test_a_seed_gives_each_epoch_an_order_that_all_workers_know(reader):
  table = Table(10, epochs=2)
  one = reader(table, seed=1)
  found = one.rest()
  assert sorted(found[:10]) == list(range(10))
  assert sorted(found[10:]) == [E + i for i in range(10)]
  assert [f % E for f in found[:10]] != [f % E for f in found[10:]] != list(range(10))
  again = reader(Table(10, epochs=2), owner=3, seed=1)
  assert again.rest() == found
  one.claims.drained()
  assert table.ranges.are_done


def test_a_table_that_is_silent_for_a_while_is_waited_for(reader):
  table = Table(2)
  one = reader(table)
  table.is_silent = True
  thread = threading.Timer(0.3, lambda: setattr(table, "is_silent", False))
  thread.start()
  assert one.rest() == [0, 1]
  thread.join()


def test_a_claim_whose_answer_was_lost_comes_back(reader):
  table = Table(3)
  one = reader(table)
  table.change(lambda ranges: ranges.claim(0))  # and nobody heard
  assert one.next() == 0  # it has come back before
  assert one.rest() == [1, 2]
