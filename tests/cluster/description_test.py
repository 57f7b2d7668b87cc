from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Cluster, ClusterError, Task, parse_address

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
  assert dataclasses.replace(cluster, job_name=job).is_chief
  assert dataclasses.replace(cluster, job_name=job).replica_index == 0


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
  cluster = Cluster(JOBS, "evaluator", 0, source="flags")
  assert cluster.task == ("evaluator", 0, "")
  assert not cluster.is_chief
  assert cluster.replica_index is None
  cluster = dataclasses.replace(cluster, evaluators={0: "g:1"})
  assert cluster.task == ("evaluator", 0, "g:1")
  assert "evaluator" not in cluster.cluster_spec().jobs


@pytest.mark.parametrize("jobs, chief, replicas", [
    ({"local": {0: "a:0"}}, "/job:local/task:0", 1),
    ({"zoo": {0: "a:1"}, "bar": {2: "b:1", 3: "c:1"}, "ps": {0: "d:1"}}, "/job:bar/task:2", 2),
    ({"ps": {1: "a:1"}}, "/job:ps/task:1", 1),
    ({"server": {0: "a:1"}, "ps": {0: "d:1"}}, "/job:server/task:0", 1),
])
def test_clusters_without_chief_and_worker(jobs, chief, replicas):
  job = sorted(jobs)[0]
  cluster = Cluster(jobs, job, min(jobs[job]))
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
  with pytest.raises(ClusterError, match="the cluster has no /job:ps/task:2, only /job:ps/ta"):
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
      "chief 0 is missing here and f:1 there",
      "ps 1 is b:1 here and missing there",
      "worker 1 is 127.0.0.1:5 here and 127.0.0.1:6 there",
      "worker 10 is missing here and e:1 there",
  ]


def test_to_json():
  assert Cluster({"ps": {2: "a:1"}}, "ps", 2).to_json() == {"ps": {"2": "a:1"}}


def test_describe():
  cluster = Cluster(JOBS, "worker", 1, {0: "g:1"}, source="flags")
  assert cluster.describe() == (
      "ps: a:1, b:1\n"
      "worker: c:1, d:1, e:1\n"
      "evaluator: g:1\n"
      "this task: /job:worker/task:1 (chief is /job:worker/task:0), from flags")
  assert dataclasses.replace(cluster, task_index=0).describe().endswith(
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


# The checks.


def refusal(*args, source="flags", **kwargs):
  with pytest.raises(ClusterError) as error:
    Cluster(*args, source=source, **kwargs)
  return str(error.value)


@pytest.mark.parametrize("args, kwargs", [
    ((JOBS, "ps", 1), {}),
    ((JOBS, "worker", 2), {}),
    ((JOBS, "evaluator", 0), {}),
    ((JOBS, "evaluator", 0, {0: "g:1"}), {}),
    ((dict(JOBS, chief={0: "f:1"}), "chief", 0), {}),
    ((JOBS, "worker", 2), {"job_workers": (1, 2)}),
    ((JOBS, "ps", 0), {"job_workers": (1, 2)}),
    (({"ps": {1: "a:1", 3: "b:1"}, "worker": {7: "c:1"}}, "worker", 7), {}),
    (({"worker": {0: "localhost:0"}}, "worker", 0), {}),
    (({"worker": {0: "localhost:0"}}, "evaluator", 0, {0: "g:1"}), {}),
    (({"any_Job1": {0: "localhost:0"}}, "any_Job1", 0), {"source": "ClusterSpec"}),
    (({"ps": {0: "localhost:0"}}, "ps", 0), {"source": "ClusterSpec"}),
    (({"worker": {0: "[::1]:1", 1: "[::1]:2"}}, "worker", 0), {}),
])
def test_accepts(args, kwargs):
  Cluster(*args, **dict({"source": "flags"}, **kwargs))


@pytest.mark.parametrize("name, right", [
    ("wroker", "worker"), ("workers", "worker"), ("Worker", "worker"), ("PS", "ps"),
    ("parameter_server", "ps"), ("parameter-server", "ps"), ("ParameterServer", "ps"),
    ("evalator", "evaluator"), ("eval", "evaluator"),
])
def test_names_the_nearest_job(name, right):
  assert refusal(JOBS, name, 0) == (
      f'--job_name: "{name}" is not a job: did you mean "{right}"?')


def test_names_all_jobs_where_none_is_near():
  assert refusal(JOBS, "x", 0, source="TF_CONFIG") == (
      'TF_CONFIG task.type: "x" is not a job: give one of evaluator, ps, worker')


def test_a_job_whose_hosts_are_not_given():
  assert refusal(JOBS, "chief", 0, source="TF_CONFIG") == (
    'TF_CONFIG task.type is "chief", but TF_CONFIG cluster.chief is not given: give it, or use '
    "one of evaluator, ps, worker")


def test_a_cluster_spec_has_no_evaluator_of_its_own():
  assert refusal(JOBS, "evaluator", 0, source="ClusterSpec") == (
      'job_name: "evaluator" is not a job: give one of ps, worker')


@pytest.mark.parametrize("job, index, message", [
    ("worker", -1, "--task_index: -1 is negative: the worker tasks are 0 to 2"),
    ("worker", 3, "--task_index: 3 is out of range: the worker tasks are 0 to 2"),
    ("evaluator", 1, "--task_index: 1 is out of range: the only evaluator is 0"),
    ("worker", None, "--task_index is missing: give this task's index in its job, from 0"),
    ("worker", "0", "--task_index: '0' is not an integer: give this task's index in its job, "
                    "from 0"),
    ("worker", True, "--task_index: True is not an integer: give this task's index in its job, "
                     "from 0"),
    (None, 0, "--job_name is missing: give one of evaluator, ps, worker"),
    ("", 0, "--job_name is missing: give one of evaluator, ps, worker"),
    (7, 0, "--job_name: 7 is not a string: give the name of a job"),
])
def test_refuses_this_task(job, index, message):
  assert refusal(JOBS, job, index) == message


def test_tells_the_indices_of_a_sparse_job():
  jobs = {"ps": {1: "a:1", 3: "b:1"}, "worker": {0: "c:1"}}
  assert refusal(jobs, "ps", 0, source="TF_CONFIG") == (
      "TF_CONFIG task.index: 0 is out of range: the ps tasks are 1, 3")


@pytest.mark.parametrize("jobs, evaluators, source, message", [
    ({"ps": {0: "a:1", 1: "a:1"}, "worker": {0: "c:1"}}, {}, "flags",
     "--ps_hosts: a:1 of /job:ps/task:1 is already the address of /job:ps/task:0 (--ps_hosts): "
     "each task needs its own"),
    ({"ps": {0: "a:1"}, "worker": {0: "A:1"}}, {}, "TF_CONFIG",
     "TF_CONFIG cluster.worker[0]: A:1 of /job:worker/task:0 is already the address of "
     "/job:ps/task:0 (TF_CONFIG cluster.ps[0]): each task needs its own"),
    ({"ps": {0: "localhost:1"}, "worker": {0: "127.0.0.1:01"}}, {}, "ClusterSpec",
     "ClusterSpec worker[0]: 127.0.0.1:01 of /job:worker/task:0 is already the address of "
     "/job:ps/task:0 (ClusterSpec ps[0]): each task needs its own"),
    ({"worker": {0: "a:1"}}, {0: "a:1"}, "TF_CONFIG",
     "TF_CONFIG cluster.evaluator[0]: a:1 of /job:evaluator/task:0 is already the address of "
     "/job:worker/task:0 (TF_CONFIG cluster.worker[0]): each task needs its own"),
])
def test_refuses_the_same_address_twice(jobs, evaluators, source, message):
  assert refusal(jobs, "worker", 0, evaluators, source=source) == message


@pytest.mark.parametrize("jobs, evaluators, source, where", [
    ({"ps": {0: "a"}, "worker": {0: "b:1"}}, {}, "flags", "--ps_hosts: "),
    ({"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:0"}}, {}, "flags", "--worker_hosts: "),
    ({"worker": {0: "b:1"}}, {0: "b:70000"}, "TF_CONFIG", "TF_CONFIG cluster.evaluator[0]: "),
])
def test_refuses_a_bad_address(jobs, evaluators, source, where):
  assert refusal(jobs, "worker", 0, evaluators, source=source).startswith(where)


@pytest.mark.parametrize("jobs, message", [
    ({"ps": {}, "worker": {0: "a:1"}},
     "ClusterSpec ps has no tasks: give it an address, or leave it out"),
    ({"worker": {-1: "a:1"}},
     "ClusterSpec worker[-1]: the index -1 is negative: count from 0"),
    ({"my-job": {0: "a:1"}},
     "ClusterSpec my-job: 'my-job' is not a job name: it begins with a letter and contains "
     "letters, digits and underscores"),
    ({"": {0: "a:1"}},
     "ClusterSpec : '' is not a job name: it begins with a letter and contains letters, "
     "digits and underscores"),
    ({"chief": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1"}},
     "ClusterSpec chief has 2 tasks: a cluster has one chief, make the others workers"),
    ({}, "the cluster has no tasks: give ClusterSpec worker"),
])
def test_refuses_jobs(jobs, message):
  assert refusal(jobs, "worker", 0, source="ClusterSpec") == message


def test_somebody_must_train():
  assert refusal({"ps": {0: "a:1"}}, "ps", 0) == (
      "the cluster has only ps and no task that trains: give --worker_hosts")


@pytest.mark.parametrize("jobs, index, job_workers, message", [
    (JOBS, 0, (0, 3), "--job_workers: worker 3 does not exist: the worker tasks are 0 to 2"),
    (JOBS, 0, (), "--job_workers names no worker: the worker tasks are 0 to 2"),
    (JOBS, 0, (1, 2), "--task_index: worker 0 is not in --job_workers, which names 1, 2: start "
                      "it with the job it belongs to"),
    ({"chief": {0: "a:1"}}, 0, (0,), "--job_workers is given, but the cluster has no workers: give "
                                     "--worker_hosts, or leave it out"),
])
def test_refuses_job_workers(jobs, index, job_workers, message):
  job = "worker" if "worker" in jobs else "chief"
  assert refusal(jobs, job, index, job_workers=job_workers) == message


# Addresses.


@pytest.mark.parametrize("text, host, port", [
    ("localhost:2222", "localhost", 2222),
    ("127.0.0.1:1", "127.0.0.1", 1),
    ("ps-0.train_jobs.svc:65535", "ps-0.train_jobs.svc", 65535),
    ("[::1]:2222", "::1", 2222),
    ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
])
def test_takes_apart(text, host, port):
  assert parse_address(text, "--ps_hosts") == (host, port)


@pytest.mark.parametrize("text, wrong, right", [
    ("localhost", "no port", '"localhost:2222"'),
    ("localhost:", "no port", '"localhost:2222"'),
    ("[::1]", "no port", '"[::1]:2222"'),
    ("[::1]2222", "no port", '"[::1]:2222"'),
    ("localhost:0", "is 0", "from 1 to 65535"),
    ("localhost:99999", "above 65535 (TensorFlow would listen on 34463)", "from 1 to 65535"),
    ("localhost:http", "is not a number", "from 1 to 65535"),
    ("localhost:-1", "is not a number", "from 1 to 65535"),
    ("localhost:+1", "is not a number", "from 1 to 65535"),
    ("localhost:1e3", "is not a number", "from 1 to 65535"),
    ("localhost:\u0661", "is not a number", "from 1 to 65535"),
    ("http://localhost:2222/job", "is a URL", '"localhost:2222"'),
    ("grpc://localhost:2222", "is a URL", '"localhost:2222"'),
    ("localhost:2222/job", 'has a "/"', "host:port"),
    (" localhost:2222", "has a blank", "without blanks"),
    ("localhost:22 22", "has a blank", "without blanks"),
    ("localhost:2222\n", "has a blank", "without blanks"),
    (":2222", "no host", '"localhost:2222"'),
    ("", "is empty", "host:port"),
    ("::1", "without brackets or a port", '"[::1]:2222"'),
    ("a:1;b:2", 'more than one ":"', "commas"),
    ("[localhost]:2222", "not an IPv6 address", '"[::1]:2222"'),
    ("[::1:2222", "not an IPv6 address", '"[::1]:2222"'),
    (2222, "is not a string", "host:port"),
    (None, "is not a string", "host:port"),
])
def test_refuses(text, wrong, right):
  with pytest.raises(ClusterError) as error:
    parse_address(text, "TF_CONFIG cluster.ps[0]")
  message = str(error.value)
  assert message.startswith("TF_CONFIG cluster.ps[0]: ")
  assert wrong in message and right in message
  assert str(text).strip() in message


def test_zero_where_the_system_may_choose():
  assert parse_address("localhost:0", "here", allow_zero=True).port == 0


def test_is_a_value_error():
  assert issubclass(ClusterError, ValueError)
