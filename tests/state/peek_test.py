from __future__ import annotations

import time

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.compat import worker_service
from tf1ps.state import containers, control, peek, queues


def look(ps, names=()):
  with peek.Peek(ps, harness.LIMIT) as made:
    return made.records(), made.queues(names)


def resources(ps, container, name, op, **kwargs):
  """Whether there is a thing, by an operation that makes nothing."""
  with tf.Graph().as_default() as graph, tf.device(ps.name):
    fetch = op(peek._reference(container, name), **kwargs)
  with tf.Session("grpc://" + ps.address, graph) as session:
    try:
      session.run(fetch)
      return True
    except tf.errors.NotFoundError:
      return False


def test_records_and_their_ages(ps):
  worker_service.cleanup_all(ps.address, [containers.CONTROL], harness.LIMIT)
  table = control.ControlTable("grpc://" + ps.address, ps, ps)
  began = time.monotonic()
  table.put({"run:a": {"id": "x"}, "other": {"é": [1, 2]}})
  records, _ = look(ps)
  table.close()
  assert {name: record.value for name, record in records.items()} == {
    "run:a": {"id": "x"}, "other": {"é": [1, 2]}}
  # At most since before it was written, but that its stamp is rounded.
  assert all(0.0 <= record.age < time.monotonic() - began + 0.1 for record in records.values())


def test_it_finds_nothing_and_leaves_nothing(ps):
  worker_service.cleanup_all(ps.address, [containers.CONTROL, "jobs/none"], harness.LIMIT)
  for _ in range(2):
    assert look(ps, ["jobs/none", ""]) == ({}, [])
  export = lambda handle: tf.raw_ops.LookupTableExport(  # noqa: E731
    table_handle=handle, Tkeys=tf.int64, Tvalues=tf.string)
  assert not resources(ps, containers.CONTROL, control.TABLE, export)
  assert not resources(ps, "jobs/none", "tf1ps.register", export)


def test_the_queues_of_a_container(ps):
  worker_service.cleanup_all(ps.address, ["jobs/q"], harness.LIMIT)
  with tf.Graph().as_default() as graph, tf.device(ps.name), graph.container("jobs/q"):
    made = [queues.FIFOQueue(5, tf.int32, [], shared_name="first"),
            queues.RandomShuffleQueue(-1, 0, tf.float32, [2], shared_name="second")]
    with tf.Session("grpc://" + ps.address, graph) as session:
      made[0].put(session, 1)
      made[1].put(session, [1.0, 2.0])
      made[0].put(session, 2)
      _, seen = look(ps, ["jobs/q"])
      assert seen == [
        peek.QueueSeen("first", "FIFOQueue", "jobs/q", 2, 5),
        peek.QueueSeen("second", "RandomShuffleQueue", "jobs/q", 1, -1)]
      assert made[0].get(session) == 1  # no element was taken


def test_a_queue_that_vanishes_is_left_out(ps):
  worker_service.cleanup_all(ps.address, ["jobs/v"], harness.LIMIT)
  with tf.Graph().as_default() as graph, tf.device(ps.name), graph.container("jobs/v"):
    announced = queues.FIFOQueue(5, tf.int32, [], shared_name="announced")._steps.announced
    with tf.Session("grpc://" + ps.address, graph) as session:
      session.run(announced)
  assert look(ps, ["jobs/v"])[1] == []


def test_a_task_that_is_silent_is_an_error_within_the_limit(ps):
  address, = harness.addresses(1)
  with pytest.raises(control.ControlError, match="does not answer"):
    with peek.Peek(ps._replace(address=address), 0.5) as made:
      made.records()
