"""Tests of tf1ps/placement/load_table.py."""

from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement.load_table import (
  TaskLoad,
  count_lookups,
  format_load_table,
  make_load_table,
)

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def graph():
  """A graph of its own for each test."""
  with tf.Graph().as_default() as g:
    yield g


def make(name, device, shape, use_resource=True):
  with tf.device(device):
    return tf.get_variable(name, shape, use_resource=use_resource)


@KINDS
def test_counts_by_task_in_the_order_of_job_and_index(use_resource):
  make("a", "/job:ps/task:10", [2, 3], use_resource)
  make("b", "/job:ps/task:2", [5], use_resource)
  make("c", "/job:ps/task:10/cpu:0", [], use_resource)
  make("d", "/job:chief/task:0", [1], use_resource)
  make("e", "/job:ps", [1], use_resource)
  make("f", None, [7], use_resource)
  assert make_load_table() == [
      ("", 1, 28, 0), ("/job:chief/task:0", 1, 4, 0), ("/job:ps", 1, 4, 0),
      ("/job:ps/task:2", 1, 20, 0), ("/job:ps/task:10", 2, 28, 0)]


@KINDS
def test_slots_count_and_local_variables_do_not(use_resource):
  a = make("a", "/job:ps/task:0", [2, 3], use_resource)
  b = make("b", "/job:ps/task:1", [5], use_resource)
  with tf.device("/job:worker"):
    tf.get_local_variable("c", [100], use_resource=use_resource)
    loss = tf.reduce_sum(a) + tf.reduce_sum(b)
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
  assert make_load_table() == [("/job:ps/task:0", 2, 48, 0), ("/job:ps/task:1", 2, 40, 0)]


def test_variables_and_graph_can_be_given(graph):
  a = make("a", "/job:ps/task:0", [2])
  make("b", "/job:ps/task:1", [3])
  with tf.Graph().as_default():
    assert make_load_table() == []
    assert make_load_table(graph=graph) == [
      ("/job:ps/task:0", 1, 8, 0),
      ("/job:ps/task:1", 1, 12, 0),
    ]
    assert make_load_table([a]) == [TaskLoad(task="/job:ps/task:0", variables=1, bytes=8)]


@KINDS
def test_unknown_shape_counts_no_bytes(use_resource):
  with tf.device("/job:ps/task:0"):
    tf.get_variable("a", initializer=tf.placeholder(tf.float32, [None]), validate_shape=False,
                    use_resource=use_resource)
  assert make_load_table() == [("/job:ps/task:0", 1, 0, 0)]


@KINDS
def test_shards_of_a_partitioned_variable_and_their_slots_count_where_they_are(use_resource):
  with tf.device("/job:ps/task:1"):
    whole = tf.get_variable("a", [9, 20], partitioner=tf.fixed_size_partitioner(2),
                            use_resource=use_resource)
    make("b", "", [10], use_resource)
  assert make_load_table() == [("/job:ps/task:1", 3, 760, 2)]
  tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(tf.square(whole)))
  assert make_load_table() == [("/job:ps/task:1", 5, 1480, 4)]
  with pytest.raises(TypeError, match="of a partitioned variable its parts"):
    make_load_table([whole])


def test_format():
  rows = [TaskLoad("/job:ps/task:0", 3, 7446528), TaskLoad("/job:ps/task:1", 13, 8232),
          TaskLoad("", 1, 0)]
  assert format_load_table(rows).splitlines() == [
      "ps              variables      bytes  share",
      "/job:ps/task:0          3  7,446,528  99.9%",
      "/job:ps/task:1         13      8,232   0.1%",
      "(not placed)            1          0   0.0%",
  ]


def test_format_with_shards():
  rows = [TaskLoad("/job:ps/task:0", 13, 8232, 12), TaskLoad("/job:ps/task:1", 1, 8, 0)]
  assert format_load_table(rows).splitlines() == [
      "ps              variables  shards  bytes  share",
      "/job:ps/task:0         13      12  8,232  99.9%",
      "/job:ps/task:1          1       0      8   0.1%",
  ]


def test_format_without_bytes():
  assert format_load_table([]) == "ps  variables  bytes  share"
  assert format_load_table([TaskLoad("/job:ps/task:0", 1, 0)]).splitlines()[1].endswith("  0.0%")


def test_format_with_lookups():
  rows = [TaskLoad("/job:ps/task:0", 1, 400), TaskLoad("/job:ps/task:1", 1, 400),
          TaskLoad("/job:ps/task:2", 1, 8)]
  lookups = {"/job:ps/task:0": 1200.2, "/job:ps/task:1": 400}
  assert format_load_table(rows, lookups).splitlines() == [
      "ps              variables  bytes  share  lookups  share",
      "/job:ps/task:0          1    400  49.5%    1,200  75.0%",
      "/job:ps/task:1          1    400  49.5%      400  25.0%",
      "/job:ps/task:2          1      8   1.0%        0   0.0%",
  ]


@KINDS
def test_lookups_are_rows_of_variables_by_the_task_that_holds_them(use_resource):
  a = make("a", "/job:localhost/task:0", [9, 2], use_resource)
  b = make("b", None, [9], use_resource)
  ids = tf.placeholder(tf.int64, [None])
  loss = tf.reduce_sum(tf.nn.embedding_lookup(a, ids)) + tf.reduce_sum(tf.gather(a, [[1, 2]]))
  loss += tf.reduce_sum(tf.gather(b, ids[:1])) + tf.gather(tf.constant([1.0, 2.0]), 1)
  loss += tf.cond(loss > 0, lambda: tf.reduce_sum(tf.gather(b, [1, 2, 3])), lambda: 0.0)
  tf.gather(b, [4, 5])  # no part of the step
  train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
  for fetches in (loss, [train]):
    counts = count_lookups(fetches)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      found = session.run(counts, {ids: [3, 3, 7, 0, 1]})
    assert found == {"/job:localhost/task:0": 7, "": 1}
