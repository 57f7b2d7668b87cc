from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.transfer import placed, signals

PS0, PS1, WORKER = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def on(task, name, *waits_for):
  """A constant there, or for a name that ends with "noop" an operation without a value."""
  with tf.device(task), tf.control_dependencies(waits_for):
    return tf.no_op(name) if name.endswith("noop") else tf.constant(1.0, name=name).op


def found(*fetches):
  devices = placed.OpDevices(WORKER)
  ops = placed.needed_ops(fetches)
  return [tuple(one) for one in signals.signals(
    ops, fetches, {op: placed.task_of_device(devices.of(op)) for op in ops})]


def test_one_signal_for_those_who_wait_for_the_same():
  a = on(PS0, "a")
  assert found(on(WORKER, "b", a), on(WORKER, "c", a), on(PS1, "d", a), on(PS0, "e", a)) == [
    ("a", PS0, WORKER), ("a", PS0, PS1)]


def test_one_signal_for_one_who_waits_for_several_of_a_task():
  waits_for = [on(PS0, "a"), on(PS0, "b"), on(PS1, "c"), on(WORKER, "d")]
  assert found(on(WORKER, "e", *waits_for)) == [("e", PS0, WORKER), ("c", PS1, WORKER)]


def test_a_noop_between_two_operations_of_a_task_is_left_out():
  noop = on(WORKER, "noop", on(PS0, "a"))
  assert found(on(PS0, "b", noop)) == []
  assert found(noop) == [("a", PS0, WORKER)]  # fetched


def test_noops_in_a_row():
  first = on(WORKER, "first_noop", on(PS0, "a"))
  assert found(on(PS1, "b", on(WORKER, "second_noop", first))) == [("a", PS0, PS1)]


def test_a_noop_stays_where_it_gathers_for_another_task():
  noop = on(WORKER, "noop", on(PS0, "a"), on(PS1, "b"))
  assert found(on(PS0, "c", noop)) == [
    ("a", PS0, WORKER), ("b", PS1, WORKER), ("noop", WORKER, PS0)]


def test_a_noop_stays_where_it_passes_on_to_several():
  noop = on(WORKER, "noop", on(PS0, "a"))
  assert found(on(WORKER, "b", noop), on(WORKER, "c", noop)) == [("a", PS0, WORKER)]
  assert found(on(PS0, "d", noop), on(PS0, "e", noop)) == [
    ("a", PS0, WORKER), ("noop", WORKER, PS0)]


def test_a_noop_that_saves_dependencies():
  noop = on(PS0, "noop", *[on(PS0, "a%d" % i) for i in range(3)])
  assert found(on(WORKER, "b", noop), on(WORKER, "c", noop)) == [("noop", PS0, WORKER)]


def test_a_noop_stays_where_it_saves_dependencies_within_a_task():
  noop = on(PS0, "noop", *[on(WORKER, "a%d" % i) for i in range(3)])
  assert found(on(WORKER, "b", noop), on(WORKER, "c", noop)) == [
    ("noop", WORKER, PS0), ("noop", PS0, WORKER)]


def test_a_noop_stays_where_more_would_cross_without_it():
  noop = on(PS0, "noop", on(PS0, "a"), on(PS1, "b"))
  assert found(on(WORKER, "c", noop), on(WORKER, "d", noop)) == [
    ("b", PS1, PS0), ("noop", PS0, WORKER)]


def test_a_noop_stays_where_it_is_fetched():
  noop = on(WORKER, "noop", on(PS0, "a"))
  assert found(noop, on(PS0, "b", noop)) == [("a", PS0, WORKER), ("noop", WORKER, PS0)]
