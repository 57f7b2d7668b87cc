from __future__ import annotations

import time

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Cluster, ClusterError, Task
from tf1ps.cluster.device_filters import filters_show_task, make_device_filters

JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1", 10: "e:1"}}
WORKER_1 = Cluster(JOBS, "worker", 1)
ALWAYS = ["/job:ps/task:0", "/job:worker/task:1"]


def graph_on(*devices):
  graph = tf.Graph()
  with graph.as_default():
    for device in devices:
      with tf.device(device):
        tf.constant(1.0)
  return graph


@pytest.mark.parametrize("devices, filters", [
    ([], ALWAYS),
    (["", "/cpu:0", "/device:GPU:3"], ALWAYS),
    (["/job:worker/task:1/cpu:0", "/job:ps/task:0"], ALWAYS),
    (["/job:ps/replica:0/task:1/device:CPU:0"],
     ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"]),
    (["/job:ps"], ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"]),
    (["/job:worker/task:10", "/job:worker/task:0"],
     ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1", "/job:worker/task:10"]),
    (["/task:0"], ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"]),
])
def test_the_tasks_that_the_graph_names(devices, filters):
  assert make_device_filters(graph_on(*devices), WORKER_1) == filters


def test_the_chief_where_there_is_no_ps():
  cluster = Cluster({"worker": {0: "a:1", 1: "b:1"}}, "worker", 1)
  assert make_device_filters(graph_on(), cluster) == ["/job:worker/task:0", "/job:worker/task:1"]


def test_devices_inside_functions():
  graph = tf.Graph()
  with graph.as_default():
    @tf.function
    def on_ps():
      with tf.device("/job:ps/task:1"):
        return tf.random.uniform([])
    on_ps()
  assert {op.device for op in graph.get_operations()} == {""}
  assert make_device_filters(graph, WORKER_1) == [
      "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"]


@pytest.mark.parametrize("device, said", [
    ("/job:localhost/task:0", "there is no /job:localhost/task:0 in the cluster"),
    ("/job:trainer", "there is no job trainer in the cluster, which has ps, worker"),
    ("/job:ps/task:2", "there is no /job:ps/task:2 in the cluster, which has /job:ps/task:0, "),
])
def test_refuses_a_task_that_is_not_there(device, said):
  graph = graph_on("/job:ps/task:0")
  with graph.as_default(), tf.device(device):
    tf.constant(1.0, name="lost")
    tf.constant(1.0, name="lost_too")
  with pytest.raises(ClusterError) as error:
    make_device_filters(graph, WORKER_1)
  assert str(error.value).startswith(f'the op "lost" is placed on "{device}", but {said}')


def test_is_quick_on_a_large_graph():
  graph = tf.Graph()
  with graph.as_default(), tf.device("/job:ps/task:1"):
    for _ in range(5000):
      tf.no_op()
  began = time.process_time()
  filters = make_device_filters(graph, WORKER_1)
  assert time.process_time() - began < 1.0
  assert filters == ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"]


@pytest.mark.parametrize("filters, expected", [
  ([], []), (["/job:ps"], ["ps 0", "ps 1"]), (["/job:ps/task:1", "/job:worker/task:0"],
                                              ["ps 1", "worker 0"])])
def test_what_filters_show(filters, expected):
  tasks = [Task(job, index, "a:1") for job in ("ps", "worker") for index in (0, 1)]
  assert ["%s %d" % (task.job, task.index) for task in tasks
          if filters_show_task(filters, task)] == expected
