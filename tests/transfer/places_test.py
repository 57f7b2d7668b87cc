"""Packs stand beside the values on a task: on a GPU a buffer crosses once in each direction.

A second CPU device of the worker stands for the GPU.
"""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.graph import task_of_device
from tf1ps.transfer import buckets, fetch, graph_packing

OTHER = WORKER + "/device:CPU:1"


@pytest.fixture(scope="module")
def target():
  """Of a worker with two devices, beside a ps."""
  ps, worker = harness.addresses(2)
  cluster = tf.train.ClusterSpec({"ps": [ps], "worker": [worker]})
  servers = [tf.train.Server(cluster, job, 0, config=tf.ConfigProto(device_count={"CPU": count}))
             for job, count in (("ps", 1), ("worker", 2))]
  yield servers[1].target
  del servers


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def crossings(session, fetches):
  """Runs fetches; returns the tensors that pass between the worker's devices, and from tasks."""
  options, metadata = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
  values = session.run(fetches, options=options, run_metadata=metadata)
  within, between = [], []
  for partition in metadata.partition_graphs:
    for node in partition.node:
      if node.op in ("_Recv", "_HostRecv"):
        sender = node.attr["send_device"].s.decode()
        is_here = task_of_device(sender) == task_of_device(node.device)
        name = node.attr["tensor_name"].s.decode()
        if not name.endswith("_Sum"):  # the loss, a fetch
          (within if is_here else between).append(name)
  return values, within, between


def layers(count, device):
  """A chain of small layers; returns its result and its variables."""
  y = tf.constant([[1.0, 2.0, 3.0]])
  names = []
  for number in range(count):
    with tf.device(graphs.setter()):
      weights = graphs.variable("w%d" % number, [3, 3], True)
    names.append(weights)
    with tf.device(device):
      y = tf.matmul(y, weights) + 1.0
  with tf.device(device):
    return tf.reduce_sum(y * y), names


def made(device, packs, wire_dtype="float32"):
  """The loss, the training op and the variables of six layers on a device of the worker."""
  loss, variables = layers(6, device)
  optimizer = tf.train.GradientDescentOptimizer(0.01)
  with tf.device(device):
    pairs = list(zip(tf.gradients(loss, variables), variables))
  if packs:
    with tf.device(WORKER):
      pairs = buckets.pack_gradients(pairs, wire_dtype=wire_dtype)
  train = optimizer.apply_gradients(pairs)
  if packs:
    fetch.fetch_variables(wire_dtype=wire_dtype)
  return loss, train, variables


@pytest.mark.parametrize("wire_dtype", ["float32", "bfloat16"])
def test_a_buffer_crosses_once(target, wire_dtype):
  loss, train, _ = made(OTHER, True, wire_dtype)
  with tf.Session(target) as session:
    session.run(tf.global_variables_initializer())
    _, within, between = crossings(session, [loss, train])
  assert len(between) <= 4, between  # the values, the gradients, the constant of the learning rate
  assert within == []


def test_the_results_are_those_of_single_tensors(target):
  found = []
  for packs in (False, True):
    with tf.Graph().as_default():
      loss, train, variables = made(OTHER, packs)
      with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run([loss, train])[0] for _ in range(3)]
        found.append([np.array(losses), *session.run(variables)])
  for alone, packed in zip(*found):
    np.testing.assert_allclose(packed, alone, rtol=1e-6)


def test_two_devices_of_a_worker_have_one_message_and_a_part_each(target):
  y, _ = layers(3, OTHER)
  with tf.device(WORKER + "/device:CPU:0"):
    reads = [variable.read_value() for variable in tf.global_variables()]
    z = tf.add_n([tf.reduce_sum(variable + 0.0) for variable in tf.global_variables()])
  del reads
  arrival, = fetch.fetch_variables()
  assert arrival.places == (WORKER + "/device:CPU:0", OTHER)
  with tf.Session(target) as session:
    session.run(tf.global_variables_initializer())
    (found_y, found_z), within, between = crossings(session, [y, z])
    w = session.run(tf.global_variables())
  assert len(between) == 1 and len(within) == 1, (between, within)
  expected = np.array([[1.0, 2.0, 3.0]])
  for weights in w:
    expected = expected @ weights + 1.0
  np.testing.assert_allclose(found_y, np.square(expected).sum(), rtol=1e-6)
  np.testing.assert_allclose(found_z, sum(weights.sum() for weights in w), rtol=1e-6)


def test_a_legacy_graph_is_packed_beside_its_operations(target):
  loss, train, _ = made(OTHER, False)
  packed = graph_packing.pack_graph(worker=WORKER)
  assert (packed.pulls, packed.pushes) == (1, 1)
  with tf.Session(target) as session:
    session.run(tf.global_variables_initializer())
    _, within, between = crossings(session, [loss, train])
  assert within == [] and len(between) <= 4, (within, between)


def test_where_no_type_is_named_tensorflow_takes_a_gpu_if_there_is_one():
  """By the device of the buffer's operations, which names no type either."""
  made(WORKER, True)
  places = {op.device for op in tf.get_default_graph().get_operations()
            if op.type in ("ConcatV2", "SplitV", "Split") or "arrived" in op.name}
  assert places == {PS[0], WORKER}
