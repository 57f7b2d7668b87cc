from __future__ import annotations

import json
import pickle

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.view import Cluster, Task

JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1", 2: "e:1"}}


def test_names_a_task_as_tensorflow_does():
  assert Task("ps", 3, "a:1").name == "/job:ps/task:3"


def test_this_task():
  cluster = Cluster(JOBS, "worker", 1)
  assert cluster.task == ("worker", 1, "d:1")
  assert not cluster.is_chief
  assert cluster.replica_index == 1


def test_worker_0_is_the_chief_where_there_is_no_chief_job():
  cluster = Cluster(JOBS, "worker", 0)
  assert cluster.chief == ("worker", 0, "c:1")
  assert cluster.is_chief
  assert [task.name for task in cluster.replicas] == [
      "/job:worker/task:0", "/job:worker/task:1", "/job:worker/task:2"]
  assert cluster.num_replicas == 3


@pytest.mark.parametrize("job", ["chief", "master"])
def test_the_task_of_a_chief_job_is_the_chief_and_replica_0(job):
  cluster = Cluster(dict(JOBS, **{job: {0: "f:1"}}), "worker", 0)
  assert cluster.chief == (job, 0, "f:1")
  assert not cluster.is_chief
  assert cluster.replica_index == 1
  assert [task.address for task in cluster.replicas] == ["f:1", "c:1", "d:1", "e:1"]
  assert cluster._replace(job_name=job).is_chief
  assert cluster._replace(job_name=job).replica_index == 0


def test_the_workers_of_one_of_several_jobs():
  cluster = Cluster(JOBS, "worker", 2, job_workers=(1, 2))
  assert cluster.chief == ("worker", 1, "d:1")
  assert [task.index for task in cluster.replicas] == [1, 2]
  assert cluster.replica_index == 1
  assert len(cluster.tasks("worker")) == 3


def test_a_ps_does_not_train():
  cluster = Cluster(JOBS, "ps", 0)
  assert cluster.replica_index is None
  assert not cluster.is_chief
  assert cluster.chief.name == "/job:worker/task:0"


def test_an_evaluator_with_and_without_an_address():
  cluster = Cluster(JOBS, "evaluator", 0)
  assert cluster.task == ("evaluator", 0, "")
  assert not cluster.is_chief
  assert cluster.replica_index is None
  cluster = cluster._replace(evaluators={0: "g:1"})
  assert cluster.task == ("evaluator", 0, "g:1")
  assert "evaluator" not in cluster.cluster_spec().jobs


@pytest.mark.parametrize("jobs, chief, replicas", [
    ({"local": {0: "a:0"}}, "/job:local/task:0", 1),
    ({"zoo": {0: "a:1"}, "bar": {2: "b:1", 3: "c:1"}, "ps": {0: "d:1"}}, "/job:bar/task:2", 2),
    ({"ps": {1: "a:1"}}, "/job:ps/task:1", 1),
    ({"server": {0: "a:1"}, "ps": {0: "d:1"}}, "/job:server/task:0", 1),
])
def test_clusters_without_chief_and_worker(jobs, chief, replicas):
  cluster = Cluster(jobs, "local", 0)
  assert cluster.chief.name == chief
  assert cluster.num_replicas == replicas


@pytest.mark.parametrize("jobs, control", [
    (JOBS, "/job:ps/task:0"),
    ({"ps": {5: "a:1", 4: "b:1"}, "worker": {0: "c:1"}}, "/job:ps/task:4"),
    ({"worker": {0: "c:1", 1: "d:1"}}, "/job:worker/task:0"),
])
def test_control_task(jobs, control):
  assert Cluster(jobs, "worker", 0).control_task.name == control


def test_tasks_are_in_the_order_of_their_indices():
  cluster = Cluster({"worker": {10: "a:1", 2: "b:1"}, "ps": {0: "c:1"}}, "worker", 2)
  assert [task.name for task in cluster.tasks()] == [
      "/job:ps/task:0", "/job:worker/task:2", "/job:worker/task:10"]
  assert cluster.ps == [("ps", 0, "c:1")]
  assert cluster.tasks("nobody") == []


def test_find():
  cluster = Cluster(JOBS, "worker", 0, {0: "g:1"})
  assert cluster.find("ps", 1).address == "b:1"
  assert cluster.find("evaluator", 0).address == "g:1"
  with pytest.raises(ClusterError, match="no /job:ps/task:2 in the cluster, which has /job:ps/ta"):
    cluster.find("ps", 2)


def test_cluster_spec_keeps_gaps():
  spec = Cluster({"ps": {1: "a:1"}, "worker": {0: "b:1"}}, "worker", 0).cluster_spec()
  assert spec.as_dict() == {"ps": {1: "a:1"}, "worker": ["b:1"]}
  assert isinstance(spec, tf.train.ClusterSpec)


def test_digest_is_of_the_jobs_alone():
  digest = Cluster(JOBS, "worker", 0).digest()
  assert len(digest) == 12 and int(digest, 16) >= 0
  reordered = {"worker": dict(reversed(list(JOBS["worker"].items()))), "ps": JOBS["ps"]}
  assert Cluster(reordered, "ps", 1, {0: "g:1"}, source="TF_CONFIG").digest() == digest
  assert Cluster(dict(JOBS, ps={0: "a:1"}), "worker", 0).digest() != digest
  assert Cluster(dict(JOBS, ps={0: "b:1", 1: "a:1"}), "worker", 0).digest() != digest


def test_differences():
  cluster = Cluster({"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "127.0.0.1:5"}}, "ps", 0)
  other = Cluster({"ps": {0: "a:1"}, "worker": {0: "c:1", 1: "127.0.0.1:6", 10: "e:1"},
                   "chief": {0: "f:1"}}, "worker", 0)
  assert cluster.differences(json.loads(json.dumps(cluster.to_json()))) == []
  assert cluster.differences(json.loads(json.dumps(other.to_json()))) == [
      "there is no chief 0 here (f:1 there)",
      "there is no ps 1 there (b:1 here)",
      "worker 1 is 127.0.0.1:5 here and 127.0.0.1:6 there",
      "there is no worker 10 here (e:1 there)",
  ]


def test_to_json():
  assert Cluster({"ps": {2: "a:1"}}, "ps", 2).to_json() == {"ps": {"2": "a:1"}}


def test_describe():
  cluster = Cluster(JOBS, "worker", 1, {0: "g:1"})
  assert cluster.describe() == (
      "ps: a:1, b:1\n"
      "worker: c:1, d:1, e:1\n"
      "evaluator: g:1\n"
      "this task: /job:worker/task:1 (chief is /job:worker/task:0), from flags")
  assert cluster._replace(task_index=0).describe().endswith(
      "this task: /job:worker/task:0 (the chief), from flags")


def test_describe_tells_gaps_and_the_workers_of_this_job():
  cluster = Cluster({"ps": {1: "a:1", 3: "b:1"}, "worker": JOBS["worker"]}, "worker", 2,
                    job_workers=(1, 2), source="TF_CONFIG")
  assert cluster.describe() == (
      "ps: 1 is a:1, 3 is b:1\n"
      "worker: c:1, d:1, e:1\n"
      "workers of this job: 1, 2\n"
      "this task: /job:worker/task:2 (chief is /job:worker/task:1), from TF_CONFIG")


def test_travels_to_another_process():
  cluster = Cluster(JOBS, "worker", 1, {0: "g:1"}, (1, 2))
  assert pickle.loads(pickle.dumps(cluster)) == cluster
