from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.from_spec import from_cluster_spec

SPEC = {"ps": ["a:1", "b:1"], "worker": {0: "c:1", 2: "d:1"}}
JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 2: "d:1"}}


def refusal(*args):
  with pytest.raises(ClusterError) as error:
    from_cluster_spec(*args)
  return str(error.value)


@pytest.mark.parametrize("make", [
    dict, tf.train.ClusterSpec, lambda spec: tf.train.ClusterSpec(spec).as_cluster_def()])
def test_takes_what_a_server_takes(make):
  cluster = from_cluster_spec(make(SPEC), "worker", 2)
  assert cluster.jobs == JOBS
  assert cluster.task == ("worker", 2, "d:1")
  assert cluster.source == "ClusterSpec"


def server_def():
  cluster_def = tf.train.ClusterSpec(SPEC).as_cluster_def()
  return tf.train.ServerDef(cluster=cluster_def, job_name="ps", task_index=1, protocol="grpc")


def test_takes_a_server_def():
  cluster = from_cluster_spec(server_def())
  assert cluster.jobs == JOBS
  assert cluster.task == ("ps", 1, "b:1")


def test_arguments_override_a_server_def():
  assert from_cluster_spec(server_def(), "worker", 2).task == ("worker", 2, "d:1")


def test_a_server_def_without_a_job_is_refused():
  given = server_def()
  given.job_name = ""
  assert refusal(given) == "job_name is missing: it is one of ps, worker"


def test_tuples_bytes_and_indices_as_text():
  cluster = from_cluster_spec({b"ps": ("a:1",), "worker": {"3": b"b:1"}}, b"worker", np.int64(3))
  assert cluster.jobs == {"ps": {0: "a:1"}, "worker": {3: "b:1"}}
  assert cluster.task == ("worker", 3, "b:1")
  assert type(cluster.task_index) is int


@pytest.mark.parametrize("given, job_name, name", [
    ({"local": ["localhost:0"]}, None, "/job:local/task:0"),
    ({"local": {4: "localhost:0"}}, None, "/job:local/task:4"),
    ({"ps": ["a:1"], "worker": ["b:1"]}, "ps", "/job:ps/task:0"),
])
def test_leaves_away_what_only_one_task_can_be(given, job_name, name):
  assert from_cluster_spec(given, job_name).task.name == name


@pytest.mark.parametrize("args, message", [
    ((SPEC,), "job_name is missing: it is one of ps, worker"),
    ((SPEC, "ps"), "task_index is missing: give this task's index in its job, from 0"),
    ((SPEC, "wroker"), 'job_name: there is no job "wroker": did you mean "worker"?'),
    ((SPEC, "worker", 1), "task_index: 1 is out of range: the worker tasks are 0, 2"),
    ((SPEC, "worker", "0"), "task_index: '0' is no whole number: give this task's index in its "
                            "job, from 0"),
    (({"ps": "a:1"}, "ps", 0), "ClusterSpec ps: 'a:1' is no list of addresses: write "
                               '["host:port", ...]'),
    (({"ps": {"a": "a:1"}}, "ps", 0), "ClusterSpec ps: the index 'a' is no number: count from 0"),
    (({"ps": {0: "a:1", "0": "b:1"}}, "ps", 0),
     "ClusterSpec ps: the index 0 is given twice: give each task its own"),
    (({"ps": ["a:0", "b:1"]}, "ps", 0),
     'ClusterSpec ps[0]: the port of "a:0" is 0, so that the system would choose one that no '
     "other task knows: take one from 1 to 65535"),
    ((["a:1"],),
     "['a:1'] describes no cluster: give a ServerDef, ClusterDef, ClusterSpec or a dict such as "
     '{"ps": ["host:2222"], "worker": ["host:2223"]}'),
    (({7: ["a:1"], "ps": ["b:1"]}, "ps", 0),
     "ClusterSpec 7: 7 is no name for a job: it begins with a letter and goes on with letters, "
     "digits and underscores"),
    (({},), "the cluster has no tasks: give ClusterSpec worker"),
])
def test_refuses(args, message):
  assert refusal(*args) == message
