from __future__ import annotations

import pytest

from tf1ps.cluster import checks
from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.view import Cluster

JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1", 2: "e:1"}}


def refusal(cluster, **kwargs):
  with pytest.raises(ClusterError) as error:
    checks.check_cluster(cluster, **kwargs)
  return str(error.value)


@pytest.mark.parametrize("cluster", [
    Cluster(JOBS, "ps", 1),
    Cluster(JOBS, "worker", 2),
    Cluster(JOBS, "evaluator", 0),
    Cluster(JOBS, "evaluator", 0, {0: "g:1"}),
    Cluster(dict(JOBS, chief={0: "f:1"}), "chief", 0),
    Cluster(JOBS, "worker", 2, job_workers=(1, 2)),
    Cluster(JOBS, "ps", 0, job_workers=(1, 2)),
    Cluster({"ps": {1: "a:1", 3: "b:1"}, "worker": {7: "c:1"}}, "worker", 7),
    Cluster({"worker": {0: "localhost:0"}}, "worker", 0),
    Cluster({"worker": {0: "localhost:0"}}, "evaluator", 0, {0: "g:1"}),
    Cluster({"any_Job1": {0: "localhost:0"}}, "any_Job1", 0, source="ClusterSpec"),
    Cluster({"ps": {0: "localhost:0"}}, "ps", 0, source="ClusterSpec"),
    Cluster({"worker": {0: "[::1]:1", 1: "[::1]:2"}}, "worker", 0),
])
def test_accepts(cluster):
  checks.check_cluster(cluster)


@pytest.mark.parametrize("name, right", [
    ("wroker", "worker"), ("workers", "worker"), ("Worker", "worker"), ("PS", "ps"),
    ("parameter_server", "ps"), ("parameter-server", "ps"), ("ParameterServer", "ps"),
    ("evalator", "evaluator"), ("eval", "evaluator"),
])
def test_names_the_nearest_job(name, right):
  assert refusal(Cluster(JOBS, name, 0)) == (
      f'--job_name: there is no job "{name}": did you mean "{right}"?')


def test_names_all_jobs_where_none_is_near():
  assert refusal(Cluster(JOBS, "x", 0, source="TF_CONFIG")) == (
      'TF_CONFIG task.type: there is no job "x": it is one of evaluator, ps, worker')


def test_a_job_whose_hosts_are_not_given():
  assert refusal(Cluster(JOBS, "chief", 0)) == (
      '--job_name is "chief", but --chief_hosts is not given: give it, or be one of evaluator, ps, '
      "worker")


def test_a_cluster_spec_has_no_evaluator_of_its_own():
  assert refusal(Cluster(JOBS, "evaluator", 0, source="ClusterSpec")) == (
      'job_name: there is no job "evaluator": it is one of ps, worker')


@pytest.mark.parametrize("job, index, message", [
    ("worker", -1, "--task_index: -1 is negative: the worker tasks are 0 to 2"),
    ("worker", 3, "--task_index: 3 is out of range: the worker tasks are 0 to 2"),
    ("evaluator", 1, "--task_index: 1 is out of range: the only evaluator is 0"),
    ("worker", None, "--task_index is missing: give this task's index in its job, from 0"),
    ("worker", "0", "--task_index: '0' is no whole number: give this task's index in its job, "
                    "from 0"),
    ("worker", True, "--task_index: True is no whole number: give this task's index in its job, "
                     "from 0"),
    (None, 0, "--job_name is missing: it is one of evaluator, ps, worker"),
    ("", 0, "--job_name is missing: it is one of evaluator, ps, worker"),
    (7, 0, "--job_name: 7 is no text: give the name of a job"),
])
def test_refuses_this_task(job, index, message):
  assert refusal(Cluster(JOBS, job, index)) == message


def test_tells_the_indices_of_a_sparse_job():
  cluster = Cluster({"ps": {1: "a:1", 3: "b:1"}, "worker": {0: "c:1"}}, "ps", 0, source="TF_CONFIG")
  assert refusal(cluster) == "TF_CONFIG task.index: 0 is out of range: the ps tasks are 1, 3"


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
    ({"worker": {0: "a:1"}}, {0: "a:1"}, "flags",
     "--evaluator_hosts: a:1 of /job:evaluator/task:0 is already the address of "
     "/job:worker/task:0 (--worker_hosts): each task needs its own"),
])
def test_refuses_the_same_address_twice(jobs, evaluators, source, message):
  assert refusal(Cluster(jobs, "worker", 0, evaluators, source=source)) == message


@pytest.mark.parametrize("jobs, evaluators, where", [
    ({"ps": {0: "a"}, "worker": {0: "b:1"}}, {}, "--ps_hosts: "),
    ({"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:0"}}, {}, "--worker_hosts: "),
    ({"worker": {0: "b:1"}}, {0: "b:70000"}, "--evaluator_hosts: "),
])
def test_refuses_a_bad_address(jobs, evaluators, where):
  assert refusal(Cluster(jobs, "worker", 0, evaluators)).startswith(where)


@pytest.mark.parametrize("jobs, message", [
    ({"ps": {}, "worker": {0: "a:1"}},
     "ClusterSpec ps has no tasks: give it an address, or leave it away"),
    ({"worker": {-1: "a:1"}},
     "ClusterSpec worker[-1]: the index -1 is negative: count from 0"),
    ({"my-job": {0: "a:1"}},
     "ClusterSpec my-job: 'my-job' is no name for a job: it begins with a letter and goes on with "
     "letters, digits and underscores"),
    ({"": {0: "a:1"}},
     "ClusterSpec : '' is no name for a job: it begins with a letter and goes on with letters, "
     "digits and underscores"),
    ({"chief": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1"}},
     "ClusterSpec chief has 2 tasks: a cluster has one chief, make the others workers"),
    ({}, "the cluster has no tasks: give ClusterSpec worker"),
])
def test_refuses_jobs(jobs, message):
  assert refusal(Cluster(jobs, "worker", 0, source="ClusterSpec")) == message


def test_somebody_must_train():
  assert refusal(Cluster({"ps": {0: "a:1"}}, "ps", 0)) == (
      "the cluster has only ps and nobody who trains: give --worker_hosts")


@pytest.mark.parametrize("jobs, index, job_workers, message", [
    (JOBS, 0, (0, 3), "--job_workers: there is no worker 3: the worker tasks are 0 to 2"),
    (JOBS, 0, (), "--job_workers names no worker: the worker tasks are 0 to 2"),
    (JOBS, 0, (1, 2), "--task_index: worker 0 is not one of --job_workers, which names 1, 2: start "
                      "it with the job it belongs to"),
    ({"chief": {0: "a:1"}}, 0, (0,), "--job_workers is given, but there are no workers: give "
                                     "--worker_hosts, or leave it away"),
])
def test_refuses_job_workers(jobs, index, job_workers, message):
  job = "worker" if "worker" in jobs else "chief"
  assert refusal(Cluster(jobs, job, index, job_workers=job_workers)) == message


def test_needs_a_ps():
  cluster = Cluster({"worker": {0: "a:1"}}, "worker", 0)
  checks.check_cluster(cluster)
  assert refusal(cluster, needs_ps="between_graph") == (
      "between_graph needs at least one ps: give --ps_hosts")
  assert refusal(cluster._replace(source="TF_CONFIG"), needs_ps=True) == (
      "this replication needs at least one ps: give TF_CONFIG cluster.ps")
  checks.check_cluster(Cluster(JOBS, "worker", 0), needs_ps=True)
