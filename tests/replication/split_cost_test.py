from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks
from tf1ps.replication import split_cost

BATCH, DEPTH = 6, 4
CPU = "/job:localhost/replica:0/task:0/device:CPU:%d"


def mlp(devices, use_resource):
  """A hidden layer of 5 on one device, 3 outputs on the other; returns the train op."""
  outputs = tf.placeholder(tf.float32, [BATCH, DEPTH], "inputs")
  for name, units, device in zip("ho", (5, 3), devices):
    with tf.device(device), tf.variable_scope(name, use_resource=use_resource):
      weights = tf.get_variable("weights", [int(outputs.shape[1]), units])
      outputs = tf.matmul(outputs, weights)
  with tf.device(devices[-1]):
    loss = tf.reduce_sum(tf.square(outputs))
  return tf.train.GradientDescentOptimizer(0.1).minimize(loss, colocate_gradients_with_ops=True)


def sent(metadata):
  """{(operation, source, destination)} of the tensors that a run really sent."""
  found = set()
  for graph in metadata.partition_graphs:
    for node in graph.node:
      if node.op in ("_Send", "_HostSend") and not node.attr["client_terminated"].b:
        name = node.attr["tensor_name"].s.decode().split("_", 2)[2]  # edge_12_name
        found.add((name,) + tuple(
          node.attr[end].s.decode() for end in ("send_device", "recv_device")))
  return found


NO_OPTIMIZER = tf.ConfigProto(device_count={"CPU": 2})
NO_OPTIMIZER.graph_options.rewrite_options.disable_meta_optimizer = True
NO_OPTIMIZER.graph_options.optimizer_options.opt_level = -1


@pytest.mark.parametrize("use_resource", [False, True])
def test_bytes_are_those_that_a_run_sends(use_resource):
  with tf.Graph().as_default():
    step = mlp(["/cpu:0", "/cpu:1"], use_resource)
    found = {c.tensor: c for c in split_cost.crossings([step])}
    hidden = "h/MatMul:0"
    # The hidden layer goes there, its gradient comes back: [6, 5] floats each.
    large = {name: c for name, c in found.items() if c.bytes > 4}
    assert [c.bytes for c in large.values()] == [120, 120]
    assert large[hidden][1:3] == (CPU % 0, CPU % 1)
    back, = set(large) - {hidden}
    assert large[back][1:3] == (CPU % 1, CPU % 0)

    metadata = tf.RunMetadata()
    with tf.Session(config=NO_OPTIMIZER) as session:
      session.run(tf.global_variables_initializer())
      session.run(step, {"inputs:0": np.ones([BATCH, DEPTH])},
                  tf.RunOptions(output_partition_graphs=True), metadata)
      sizes = {c.tensor: value.nbytes for c, value in zip(large.values(), session.run(
        list(large), {"inputs:0": np.ones([BATCH, DEPTH])}))}
  assert sizes == {name: c.bytes for name, c in large.items()}
  expected = {(c.tensor.split(":")[0], c.source, c.destination) for c in found.values()}
  said = sent(metadata)
  assert {one for one in said if one[0] in ("h/MatMul", back.split(":")[0])} == {
    one for one in expected if one[0] in ("h/MatMul", back.split(":")[0])}
  # What else is sent bears no value: it says that something is done.
  assert all("NoOp" in name or "update" in name or "control_dependency" in name or "Group" in name
             or (name, source, destination) in expected for name, source, destination in said), said


def test_without_colocation_gradients_are_computed_on_one_device():
  with tf.Graph().as_default():
    inputs = tf.placeholder(tf.float32, [100, DEPTH])
    weights, parts = [], []
    for index in range(2):
      with tf.device("/cpu:%d" % index):
        weights.append(tf.get_variable("weights_%d" % index, [DEPTH, 3]))
        parts.append(tf.tanh(tf.matmul(inputs, weights[-1])))
    loss = tf.reduce_sum(tf.concat(parts, 1))
    there, here = (split_cost.total_crossings([c for c in split_cost.crossings(tf.gradients(
      loss, weights[1:], colocate_gradients_with_ops=colocate)) if c.source == CPU % 1])
      for colocate in (True, False))
  # The outputs that the loss needs; and then also what the gradient of tanh needs.
  assert (there, here) == (0, 1200)


def test_a_tensor_that_several_need_travels_once_to_each_device():
  with tf.Graph().as_default():
    with tf.device("/cpu:0"):
      x = tf.zeros([10])
    with tf.device("/cpu:1"):
      a = x + 1
      b = x * a
    with tf.device("/cpu:2"):
      c = x + b
    found = split_cost.crossings([a, b, "add_1:0"])
    assert c.name == "add_1:0"
  assert [(one.tensor, one.source[-1], one.destination[-1], one.bytes) for one in found] == [
    ("zeros:0", "0", "1", 40), ("zeros:0", "0", "2", 40), ("mul:0", "1", "2", 40)]
  assert split_cost.total_crossings(found) == 120
  assert split_cost.crossings_by_devices(found) == {
    (CPU % 0, CPU % 1): 40, (CPU % 0, CPU % 2): 40, (CPU % 1, CPU % 2): 40}


def test_devices_that_leave_something_open():
  with tf.Graph().as_default():
    with tf.device("/job:ps/task:1"):
      x = tf.get_variable("x", [4], use_resource=True)
    y = x + 1  # its read is where the variable is, the sum on the session's task
    with tf.device("/job:worker/task:2/cpu:0"):
      z = y * 2
    found = split_cost.crossings([z], default_device="/job:worker/task:2")
    assert split_cost.crossings_by_devices(found) == {
      ("/job:ps/replica:0/task:1/device:CPU:0", "/job:worker/replica:0/task:2/device:CPU:0"): 16}
    assert (
      split_cost.total_crossings(split_cost.crossings([y], default_device="/job:ps/task:1")) == 0
    )
    assert split_cost.crossings([]) == []


@pytest.fixture
def control_flow():
  """Chooses TensorFlow 1's; returns what chooses 2's. The choice of before holds again after it."""
  was = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  yield tf.enable_control_flow_v2
  (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


def test_a_loop_travels_once_an_iteration(control_flow):
  def total(times):
    def body(time, value):  # the value goes to the other device, and comes back
      with tf.device("/cpu:1"):
        value = value + 1.0
      with tf.device("/cpu:0"):
        return time + 1, value * 2.0

    with tf.Graph().as_default():
      _, end = tf.while_loop(
        lambda time, value: time < times, body, [tf.constant(0), tf.zeros([BATCH, 7])])
      with pytest.raises(ValueError, match="is in a loop. Give the number of iterations by iter"):
        split_cost.crossings([end])
      return split_cost.total_crossings(
        [c for c in split_cost.crossings([end], iterations=times) if c.bytes >= 4 * times * BATCH])

  assert [total(times) for times in (1, 10)] == [2 * BATCH * 7 * 4, 2 * 10 * BATCH * 7 * 4]


def cross(value):
  """Operations on two devices with a value in between."""
  with tf.device("/cpu:1"):
    return tf.identity(value)


@pytest.mark.parametrize("build, message", [
  (lambda: cross(tf.placeholder(tf.float32, [None, 2], "open")), "size of open:0 is not known: "
   "its type is float32, its shape"),
  (lambda: cross(tf.placeholder(tf.float32, None, "open")), "size of open:0 is not known"),
  (lambda: cross(tf.constant("text")), "its type is string, its shape"),
])
def test_sizes_that_are_not_known(build, message):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
    split_cost.crossings([build()])


def test_control_flow_in_functions_is_refused(control_flow):
  control_flow()
  with tf.Graph().as_default():
    end = tf.while_loop(lambda i: i < 10, lambda i: i + 1, [tf.constant(0)])
    with pytest.raises(ValueError, match="Build the graph after tf.disable_control_flow_v2"):
      split_cost.crossings([end], iterations=10)


def test_times_are_taken_in_turn(monkeypatch):
  clock, calls = [0.0], []

  def step(name, seconds):
    def run():
      calls.append(name)
      clock[0] += seconds[min(len(calls) // 2, len(seconds) - 1)]

    return run

  monkeypatch.setattr(split_cost.time, "perf_counter", lambda: clock[0])
  times = split_cost.compare_split(step("one", [100.0, 1.0]), step("two", [100.0, 3.0]), 5, 2)
  assert times == split_cost.Comparison(1.0, 3.0) and times.ratio == 3.0
  assert calls == ["two", "one", "one", "two"] * 3 + ["two", "one"]


def test_times_of_sessions():
  with tf.Graph().as_default(), tf.Session() as session:
    short, long = tf.constant(1.0), tf.reduce_sum(tf.linalg.matmul(*[tf.ones([600, 600])] * 2))
    times = split_cost.compare_split(lambda: session.run(short), lambda: session.run(long), 11)
  assert 0 < times.unsplit and 0 < times.split


def test_a_table():
  slow = split_cost.split_table(split_cost.Comparison(0.001204, 0.0023116), 524288)
  assert slow.splitlines() == [
    "            ms per step  bytes per step between devices",
    "unsplit           1.204                               0",
    "split             2.312                         524,288",
    "the split takes 1.92 times as long: it is not worth it"]
  fast = split_cost.split_table(split_cost.Comparison(0.002, 0.001), 10, 5)
  assert fast.endswith("the split takes 0.50 times as long: it is worth it")
  assert " 5\n" in fast


def test_no_steps():
  with pytest.raises(ValueError, match="got 0 and 3"):
    split_cost.compare_split(print, print, 0)


def test_bytes_between_tasks(forks):
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    with tf.Graph().as_default():
      step = mlp([task.name for task in tasks], True)
      found = split_cost.crossings([step], default_device=tasks[0].name)
      metadata = tf.RunMetadata()
      config = tf.ConfigProto()
      config.graph_options.rewrite_options.disable_meta_optimizer = True
      with tf.Session("grpc://" + tasks[0].address, config=config) as session:
        session.run(tf.global_variables_initializer())
        session.run(step, {"inputs:0": np.ones([BATCH, DEPTH])},
                    tf.RunOptions(output_partition_graphs=True), metadata)
  places = ["/job:ps/replica:0/task:%d/device:CPU:0" % i for i in range(2)]
  large = [c for c in found if c.bytes > 4]
  assert sorted(c[1:] for c in large) == [
    (places[0], places[1], 120), (places[1], places[0], 120)]
