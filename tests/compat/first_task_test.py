from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.compat import first_task

pytestmark = pytest.mark.skipif(
  first_task.IS_TENSORFLOW_1, reason="TensorFlow 1 places them by itself")


@pytest.mark.parametrize("use_resource", [True, False])
def test_workers_share_a_variable_without_a_device(use_resource):
  address = harness.addresses(3)
  jobs = {"ps": address[:1], "worker": address[1:]}
  servers = [tf.train.Server(jobs, job, index)
             for job, index in (("ps", 0), ("worker", 0), ("worker", 1))]
  counts = []
  for server in servers[1:]:
    with tf.Graph().as_default() as graph:
      v = tf.get_variable("v", initializer=0, use_resource=use_resource)
      up = tf.assign_add(v, 1)
      assert first_task.place_variables(graph, "/job:ps/task:0") == ["v"]
      with tf.Session(server.target) as session:
        if not counts:
          session.run(v.initializer)
        counts.append(session.run(up))
  assert counts == [1, 2]


def test_what_has_a_place_stays():
  with tf.Graph().as_default() as graph:
    with tf.device("/job:worker/task:1"):
      named = tf.get_variable("named", [])
      anchor = tf.no_op()
    with tf.device("/gpu:0"):
      tf.get_variable("gpu", [])
    with graph.colocate_with(anchor):
      tf.get_variable("beside", [])
    with tf.device("/cpu:0"):
      cpu = tf.get_variable("cpu", [])
    tf.get_variable("local", [], collections=[tf.GraphKeys.LOCAL_VARIABLES])
    assert first_task.place_variables(graph, "/job:ps/task:0") == ["cpu"]
    assert cpu.op.device == "/job:ps/task:0/device:CPU:0"
    assert named.op.device == "/job:worker/task:1"
    assert first_task.place_variables(graph, "/job:ps/task:0") == []
