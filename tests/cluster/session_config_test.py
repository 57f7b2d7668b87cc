from __future__ import annotations

import socket
import time

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.cluster import session_config as config_lib
from tf1ps.cluster.description import Cluster, ClusterError, Task
from tf1ps.cluster.session_config import filters_show_task, make_device_filters


def test_sets_every_field():
  config = config_lib.make_session_config(
      gpu_memory_fraction=0.5, gpu_growth=True, inter_op_parallelism_threads=3,
      intra_op_parallelism_threads=2,
      soft_placement=False, log_device_placement=True, operation_timeout_secs=1.5,
      device_filters=["/job:ps/task:0"])
  assert config == tf.ConfigProto(
      gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5, allow_growth=True),
      inter_op_parallelism_threads=3, intra_op_parallelism_threads=2, log_device_placement=True,
      operation_timeout_in_ms=1500, device_filters=["/job:ps/task:0"])


def test_small_operations_are_run_as_they_are():
  config = config_lib.make_small_config({"/job:worker/task:0", "/job:ps/task:0"})
  assert list(config.device_filters) == ["/job:ps/task:0", "/job:worker/task:0"]
  assert config.graph_options.rewrite_options.disable_meta_optimizer


def test_places_softly_unless_told():
  assert config_lib.make_session_config() == tf.ConfigProto(allow_soft_placement=True)


def test_what_the_base_says_stays():
  base = tf.ConfigProto(
      allow_soft_placement=False, log_device_placement=True, inter_op_parallelism_threads=5,
      operation_timeout_in_ms=7, device_filters=["/job:ps"], isolate_session_state=True)
  config = config_lib.make_session_config(base=base)
  assert config == base
  assert config is not base


def test_an_argument_overrides_the_base_and_leaves_it_alone():
  base = tf.ConfigProto(log_device_placement=True, inter_op_parallelism_threads=5,
                        device_filters=["/job:ps"], isolate_session_state=True)
  before = base.SerializeToString()
  config = config_lib.make_session_config(
      inter_op_parallelism_threads=2, log_device_placement=False, soft_placement=True,
      device_filters=[],
      gpu_growth=False, base=base)
  assert config == tf.ConfigProto(
      inter_op_parallelism_threads=2, allow_soft_placement=True, isolate_session_state=True,
      gpu_options=tf.GPUOptions())
  assert base.SerializeToString() == before


def test_a_config_without_the_log_of_placements():
  logs = tf.ConfigProto(log_device_placement=True, inter_op_parallelism_threads=5)
  assert config_lib.without_placement_log(logs) == tf.ConfigProto(inter_op_parallelism_threads=5)
  assert logs.log_device_placement
  assert config_lib.without_placement_log(None) is None


@pytest.mark.parametrize("kwargs, message", [
    ({"gpu_memory_fraction": 0}, "gpu_memory_fraction is 0: it must be above 0 and at most 1"),
    ({"gpu_memory_fraction": 1.1}, "gpu_memory_fraction is 1.1: it must be above 0 and at most 1"),
    ({"inter_op_parallelism_threads": 0}, "inter_op_parallelism_threads is 0: it must be at least "
                                          "1"),
    ({"inter_op_parallelism_threads": -1}, "inter_op_parallelism_threads is -1: it must be at "
                                           "least 1"),
    ({"intra_op_parallelism_threads": 0}, "intra_op_parallelism_threads is 0: it must be at least "
                                          "1"),
    ({"operation_timeout_secs": 0}, "operation_timeout_secs is 0: it must be above 0"),
    ({"operation_timeout_secs": float("nan")}, "operation_timeout_secs is nan: it must be above 0"),
    ({"base": tf.ConfigProto(inter_op_parallelism_threads=-1)},
     "inter_op_parallelism_threads is -1 in the given config, which ends the process of a server: "
     "it must be at least 1, or 0 for TensorFlow's choice"),
])
def test_refuses(kwargs, message):
  with pytest.raises(ValueError) as error:
    config_lib.make_session_config(**kwargs)
  assert str(error.value) == message


def test_an_argument_replaces_the_bad_value_of_a_base():
  base = tf.ConfigProto(inter_op_parallelism_threads=-1)
  config = config_lib.make_session_config(inter_op_parallelism_threads=1, base=base)
  assert config.inter_op_parallelism_threads == 1


def test_the_options_of_calls(monkeypatch):
  monkeypatch.delenv("TF_GRPC_DEFAULT_OPTIONS", raising=False)
  assert config_lib.grpc_environment() == {"TF_GRPC_DEFAULT_OPTIONS": (
    "grpc.keepalive_time_ms=10000,grpc.keepalive_timeout_ms=5000,"
    "grpc.initial_reconnect_backoff_ms=100")}
  monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", "")
  assert config_lib.grpc_environment() == {}


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="1.15 takes no options of calls")
def test_a_task_that_comes_back_is_reached_soon(start):
  with socket.socket() as ps:
    ps.bind(("127.0.0.1", 0))
    ps.listen(5)
    ps.settimeout(60)
    start("worker", cluster_tasks.call_ps, {
      "ps": ["127.0.0.1:%d" % ps.getsockname()[1]], "worker": harness.addresses(1)})
    tries = []
    for _ in range(6):
      ps.accept()[0].close()
      tries.append(time.monotonic())
  # TensorFlow's own pauses last a second each, a fifth more or less. The shortest counts: what a
  # busy machine makes longer is hardly all of them.
  assert min(later - one for one, later in zip(tries, tries[1:])) < 0.5


# Device filters.


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
    ("/job:localhost/task:0", "the cluster has no /job:localhost/task:0, only "),
    ("/job:trainer", "the cluster has no job trainer, only ps, worker"),
    ("/job:ps/task:2", "the cluster has no /job:ps/task:2, only /job:ps/task:0, "),
])
def test_refuses_a_task_that_is_not_there(device, said):
  graph = graph_on("/job:ps/task:0")
  with graph.as_default(), tf.device(device):
    tf.constant(1.0, name="lost")
    tf.constant(1.0, name="lost_too")
  with pytest.raises(ClusterError) as error:
    make_device_filters(graph, WORKER_1)
  assert str(error.value).startswith(f'the op "lost" is placed on "{device}", but {said}')


@pytest.mark.slow
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
