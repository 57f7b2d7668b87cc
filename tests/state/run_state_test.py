from __future__ import annotations

import re
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training import local_server
from tf1ps.cluster.description import Task
from tf1ps.state import containers, run_state


@pytest.fixture
def record(request):
  return local_server.record(re.sub("[^a-z]", "-", request.node.name))


def session_of(record, graph):
  config = tf.ConfigProto(device_filters=[record.cluster.task.name])
  return tf.Session(record.target, graph=graph, config=config)


def clear(record, graph):
  run_state.clear_run_state(record, graph, [record.cluster.task])


def variable(name, use_resource, shape=(2,)):
  return tf.get_variable(
    name, shape, initializer=tf.ones_initializer(), use_resource=use_resource)


def test_variables_and_tables_of_the_container_are_cleared(record):
  with tf.Graph().as_default() as graph, tf.device(record.cluster.task.name):
    with tf.container(record.container):
      resource, ref = variable("resource", True), variable("ref", False)
      table = tf.raw_ops.MutableHashTableV2(
        key_dtype=tf.int64, value_dtype=tf.int64, shared_name="table")
      dense = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.int64, default_value=-1, empty_key=-1, deleted_key=-2, name="dense")
    with tf.container("another"):
      kept = variable("kept", True)
    key = tf.constant([1], tf.int64)
    insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=key, values=key)
    sizes = [tf.raw_ops.LookupTableSizeV2(table_handle=table), dense.size()]
    fill = [insert, dense.insert(key, key), tf.global_variables_initializer()]
    are_there = tf.is_variable_initialized(resource)
  with session_of(record, graph) as session:
    session.run(fill)
    assert session.run(sizes) == [1, 1]
    before = graph.version
    clear(record, graph)
    assert session.run(sizes) == [0, 0] and graph.version == before
    assert not session.run(are_there)
    assert session.run(ref).tolist() == [0.0, 0.0] and session.run(kept).tolist() == [1.0, 1.0]


def test_a_ref_variable_takes_the_shape_of_the_later_graph(record):
  graphs = []
  for shape in ((2,), (3,)):
    with tf.Graph().as_default() as graph, tf.device(record.cluster.task.name), tf.container(
        record.container):
      graphs.append((graph, variable("ref", False, shape)))
  for graph, ref in graphs:
    clear(record, graph)
    with session_of(record, graph) as session:
      session.run(ref.initializer)
      assert session.run(ref).tolist() == [1.0] * ref.shape[0]


@pytest.mark.parametrize("kind", ["fifo", "padding", "shuffle", "priority"])
def test_a_queue_loses_its_elements_and_stays(record, kind):
  with tf.Graph().as_default() as graph, tf.device(record.cluster.task.name), tf.container(
      record.container):
    name = "of " + kind
    queue = {
      "fifo": lambda: tf.queue.FIFOQueue(9, tf.int64, shared_name=name),
      "padding": lambda: tf.queue.PaddingFIFOQueue(9, [tf.int64], [[None]], shared_name=name),
      "shuffle": lambda: tf.queue.RandomShuffleQueue(9, 1, tf.int64, shared_name=name),
      "priority": lambda: tf.queue.PriorityQueue(9, [tf.int64], [[]], shared_name=name)}[kind]()
    element = tf.constant([7] if kind == "padding" else 7, tf.int64)
    put = queue.enqueue([element, element] if kind == "priority" else element)
    take, size = queue.dequeue(), queue.size()
  left = 1 if kind == "shuffle" else 0  # TensorFlow gives away no more
  taken = []
  with session_of(record, graph) as session, session_of(record, graph) as beside:
    for _ in range(3):
      session.run(put)
    clear(record, graph)
    assert session.run(size) == left
    waiter = threading.Thread(target=lambda: taken.append(beside.run(take)))
    waiter.start()
    clear(record, graph)
    session.run(put)
    waiter.join(harness.LIMIT)
    assert len(taken) == 1 and session.run(size) == left


def test_a_task_that_does_not_answer_is_named(record):
  nobody = Task("worker", 1, record.cluster.find("worker", 1).address)
  with tf.Graph().as_default() as graph, tf.device(nobody.name), tf.container(record.container):
    variable("v", True)
  with pytest.raises(containers.ContainerError, match="on /job:worker/task:1 at .* not cleared"):
    run_state.clear_run_state(record, graph, [nobody], timeout=0.5)
