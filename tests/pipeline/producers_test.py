from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.pipeline import producer_tasks
from tf1ps.pipeline import producers

NAMES = ["string_input_producer", "input_producer", "range_input_producer", "slice_input_producer",
         "batch", "batch_join", "shuffle_batch", "shuffle_batch_join", "maybe_batch",
         "maybe_batch_join", "maybe_shuffle_batch", "maybe_shuffle_batch_join"]


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def values(tensor, most=100):
  """What a tensor gives until its data ends, with queue runners."""
  found = []
  with tf.train.MonitoredSession() as session:
    while len(found) < most:
      found.append(session.run(tensor))
  return found


def lists(tensor):
  return [np.array(value).tolist() for value in values(tensor)]


@pytest.mark.parametrize("name", NAMES)
def test_takes_the_arguments_of_stock_at_their_places(name):
  stock = list(inspect.signature(getattr(tf.train, name)).parameters.values())
  ours = list(inspect.signature(getattr(producers, name)).parameters.values())
  assert ours[:-1] == stock
  assert ours[-1].name == "worker_device" and ours[-1].kind == inspect.Parameter.KEYWORD_ONLY
  assert getattr(producers, name).__name__ == name


@pytest.mark.parametrize("make", [
    lambda: producers.string_input_producer(["a", b"b"], 2, shuffle=False).dequeue(),
    lambda: producers.input_producer(["a", "b"], [], 2, shuffle=False).dequeue(),
    lambda: producers.string_input_producer(np.array(["a", "b"]), 2, shuffle=False).dequeue(),
])
def test_producers_of_values_in_order(make):
  assert values(make()) == [b"a", b"b", b"a", b"b"]


def test_slices_of_tensors_stay_together():
  slices = producers.slice_input_producer([[1, 2, 3], [10, 20, 30]], num_epochs=2)
  found = values(slices)
  assert sorted(map(tuple, found)) == [(1, 10), (1, 10), (2, 20), (2, 20), (3, 30), (3, 30)]


def numbers(last=5):
  return producers.range_input_producer(last, num_epochs=1, shuffle=False).dequeue()


def even(number):
  return producers.maybe_batch([number], tf.equal(number % 2, 0), 2)


@pytest.mark.parametrize("make, wanted", [
    (numbers, [0, 1, 2, 3, 4]),
    (lambda: producers.slice_input_producer([[[1], [2]]], 1, shuffle=False)[0], [[1], [2]]),
    (lambda: producers.batch([numbers()], 2), [[0, 1], [2, 3]]),
    (lambda: producers.batch([numbers()], 2, allow_smaller_final_batch=True), [
        [0, 1], [2, 3], [4]]),
    (lambda: even(numbers()), [[0, 2]]),
])
def test_numbers_slices_and_batches_in_order(make, wanted):
  assert lists(make()) == wanted


@pytest.mark.parametrize("make, wanted", [
    (lambda n, m: producers.batch_join([[n], [m + 5]], 2), 10),
    (lambda n, m: producers.shuffle_batch([n], 2, 9, 2, seed=1, allow_smaller_final_batch=True), 5),
    (lambda n, m: producers.shuffle_batch_join([[n], [m + 5]], 2, 10, 2), 10),
    (lambda n, m: producers.maybe_batch_join([[n]], n < 4, 2), 4),
    (lambda n, m: producers.maybe_shuffle_batch([n], 2, 10, 2, n < 4), 4),
    (lambda n, m: producers.maybe_shuffle_batch_join([[n]], 2, 10, 2, n < 4), 4),
])
def test_batchers_that_join_or_shuffle_give_each_element_once(make, wanted):
  batches = values(make(numbers(), numbers()))
  assert sorted(np.concatenate(batches).tolist()) == list(range(wanted))


@pytest.mark.parametrize("setter", [tf.train.replica_device_setter, tf1ps.replica_device_setter])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_everything_is_on_the_worker_and_in_no_container(graph, setter, use_resource):
  cluster = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
  with tf.device(setter(cluster=cluster, worker_device="/job:worker/task:1")):
    with tf.container("job"), tf.variable_scope("input", use_resource=use_resource):
      number, = producers.slice_input_producer([[1, 2, 3]], num_epochs=2)
      producers.shuffle_batch([number], 2, 10, 5)
    places = {tf.get_variable(name, []).device for name in "xy"}
  for op in graph.get_operations():
    if op.name.startswith("input/"):
      assert op.device.startswith("/job:worker/task:1"), op
      if "container" in op.node_def.attr:
        assert op.get_attr("container") == b""
  # The setter's turn-taking has not counted the counter of epochs.
  assert places == {"/job:ps/task:0", "/job:ps/task:1"}


def test_a_device_that_names_a_job_only_gets_this_process_s_task(graph):
  server = tf1ps.Server({"worker": harness.addresses(2)}, "worker", 1, start=False)
  with tf.device("/job:worker"):
    assert producers.range_input_producer(3).queue_ref.device.startswith("/job:worker/task:1")
  with tf.device("/job:ps"):
    assert "task" not in producers.range_input_producer(3).queue_ref.device
  del server


def test_without_a_device_it_is_the_worker_of_the_graph_s_setter(graph):
  assert producers.range_input_producer(3).queue_ref.device in ("", "/device:CPU:*")
  tf1ps.replica_device_setter(1, worker_device="/job:worker/task:3")
  assert producers.range_input_producer(3).queue_ref.device.startswith("/job:worker/task:3")


def test_the_worker_can_be_named(graph):
  queue = producers.range_input_producer(3, worker_device="/job:worker/task:2")
  assert queue.queue_ref.device.startswith("/job:worker/task:2")
  with pytest.raises(ValueError, match="worker_device='/job:worker/what:2' is not a device string"):
    producers.range_input_producer(3, worker_device="/job:worker/what:2")
  with pytest.raises(TypeError, match="worker_device must be a device string .*got 2"):
    producers.range_input_producer(3, worker_device=2)


@pytest.mark.parametrize("make, error, message", [
    (lambda: producers.string_input_producer([]), ValueError, "string_input_producer takes a list "
     "of at least one string, got an empty list"),
    (lambda: producers.string_input_producer("a"), ValueError, r"one string, got the shape \(\)"),
    (lambda: producers.string_input_producer(["a", 3]), TypeError, "takes strings such as the "
     "names of files, got 3"),
    (lambda: producers.string_input_producer(tf.constant([3])), TypeError, "takes strings, got "
     "a tensor of int32"),
    (lambda: producers.string_input_producer(["a"], num_epochs=0), ValueError,
     "string_input_producer: num_epochs must be at least 1, got 0"),
    (lambda: producers.range_input_producer(0), ValueError, "limit must be at least 1, got 0"),
    (lambda: producers.range_input_producer(3, capacity=0), ValueError, "capacity must be at least "
     "1, got 0"),
    (lambda: producers.slice_input_producer([]), ValueError, "a list of at least one tensor"),
    (lambda: producers.slice_input_producer([[1, 2], [1, 2, 3]]), ValueError, "all must have the "
     "same first dimension; got 2, 3"),
    (lambda: producers.slice_input_producer([np.zeros([0, 3])]), ValueError, "without a row"),
    (lambda: producers.slice_input_producer([3.0]), ValueError, "at least one dimension, got 3.0"),
    (lambda: producers.batch([tf.constant(1)], 0), ValueError, "batch: batch_size must be at least "
     "1, got 0"),
    (lambda: producers.shuffle_batch([tf.constant(1)], 2, 5, 5), ValueError, "capacity must be "
     "greater than min_after_dequeue.*got capacity 5 and min_after_dequeue 5"),
])
def test_bad_input_is_refused_when_the_graph_is_built(make, error, message):
  with pytest.raises(error, match=message):
    make()


@pytest.mark.parametrize("module, counts", [
  pytest.param("stock", 10, marks=pytest.mark.slow), ("ours", 20)])
def test_two_workers_under_tensorflow_s_setter_read_all_data(
    start, tmp_path, module, counts):
  (tmp_path / "lines").write_text("".join("%d\n" % i for i in range(5)))
  ps, *workers = harness.addresses(3)
  jobs = {"ps": [ps], "worker": workers}
  start("ps", producer_tasks.cluster_tasks.serve, jobs, "ps", 0).wait_for("up")
  tasks = [start("worker %d" % i, producer_tasks.work, jobs, i, module, str(tmp_path / "lines"),
                 str(tmp_path / "go")) for i in range(2)]
  for task in tasks:
    task.wait_for("initialised")
  (tmp_path / "go").write_text("")
  found = [int(task.wait_for("read").split()[1]) for task in tasks]
  # Two epochs of five lines; TensorFlow's workers have counted with one counter.
  assert sum(found) == counts and (module == "stock" or found == [10, 10])
