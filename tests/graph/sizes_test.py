from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.graph import constants, sizes
from tf1ps.placement import partition_large, replica_device_setter

WORKER, PS = "/job:worker/task:0", "/job:ps/task:0"
ROWS = 2 ** 22  # of a table of 2 GB


@pytest.fixture(params=[True, False], ids=["resource", "ref"])
def table(request):
  """A table in a graph under a device setter, for each kind of variables."""
  with tf.Graph().as_default(), tf.device(
      replica_device_setter(1, worker_device=WORKER, ps_strategy="greedy")):
    yield tf.get_variable("table", [ROWS, 128], use_resource=request.param)


def check(task=WORKER):
  sizes.check_tensors(tf.get_default_graph(), task)


def refused(source, target, taker, kind="variable table"):
  return (r"^the %s has 2147483648 bytes, and the operation \S*%s\S* takes it whole from %s to %s. "
          "A message between two tasks holds less than 2147483648 bytes: " % (
            kind, taker, source, target))


def test_a_table_whose_rows_are_looked_up_and_saved_beside_it(table):
  looked_up = tf.nn.embedding_lookup(table, [1, 2])
  tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(looked_up))
  tf.train.Saver(sharded=True)
  tf.shape(table.read_value())
  tf.report_uninitialized_variables()
  check()
  check("")


def test_a_variable_that_the_worker_reads(table):
  tf.reduce_sum(table.read_value())
  for task in WORKER, "":
    with pytest.raises(sizes.TooLargeError, match=refused(PS, WORKER, "Sum") + (
        "divide the variable, by --partition_bytes=1000000000 or a partitioner. With tf1ps.")):
      check(task)


def test_a_variable_whose_value_passes_others_on_its_task(table):
  with tf.device(PS):
    scaled = 2.0 * table.read_value()
  tf.reduce_sum(scaled)
  with pytest.raises(sizes.TooLargeError, match=refused(PS, WORKER, "Sum")):
    check()


def test_a_variable_that_travels_in_half_its_size(table):
  with tf.device(PS):
    half = tf.cast(table.read_value(), tf.float16)
  tf.reduce_sum(half)
  check()


def test_a_value_of_the_worker_that_is_assigned(table):
  table.assign(tf.ones([ROWS, 128]))
  with pytest.raises(sizes.TooLargeError, match=refused(WORKER, PS, "Assign")):
    check()


def test_a_value_that_is_fed(table):
  fed = tf.placeholder(tf.float32, [ROWS, 128], "fed")
  table.assign(fed)
  kind = "placeholder fed|variable table"
  with pytest.raises(sizes.TooLargeError, match=refused(WORKER, PS, "Assign", "(%s)" % kind)):
    check()


def test_what_is_fed_to_another_task():
  with tf.Graph().as_default():
    with tf.device(PS):
      tf.placeholder(tf.float32, [ROWS, 128], "fed")
    check("")  # the session's task is not known
    with pytest.raises(sizes.TooLargeError, match=refused(WORKER, PS, "fed", "placeholder fed") + (
        "feed rows, and assign them to parts of the variable, or let tf.train.init_from_")):
      check()


def test_a_variable_that_the_chief_saves(table):
  with tf.device(None):
    tf.train.Saver()
  check("")
  with pytest.raises(sizes.TooLargeError, match=refused(PS, WORKER, "SaveV2")):
    check()


def test_a_divided_variable():
  with tf.Graph().as_default(), tf.device(replica_device_setter(1, worker_device=WORKER)), \
      partition_large(10 ** 9, 1):
    tf.reduce_sum(tf.get_variable("table", [ROWS, 128]))
    check()


def test_a_graph_of_large_constants(monkeypatch):
  monkeypatch.setattr(constants, "LARGE", 1000)
  monkeypatch.setattr(constants, "LARGEST_GRAPH", 5 << 20)
  with tf.Graph().as_default() as graph:
    for count in (1, 2, 3):
      tf.constant([float(i) for i in range(count << 18)], name="c%d" % count)
    tf.constant(1.0, shape=[2 ** 30])  # equal elements, of which the graph has one
    with pytest.raises(sizes.TooLargeError, match=(
        r"^the graph has 6 MB of constants, and can hold 2047 MB. The largest are c3 \(3 MB\), "
        r"c2 \(2 MB\), c1 \(1 MB\). Read them from files, ")):
      sizes.check_constants(graph)
    monkeypatch.setattr(constants, "LARGEST_GRAPH", 7 << 20)
    sizes.check_constants(graph)
