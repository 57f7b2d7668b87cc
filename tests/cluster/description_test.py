from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.description import resolve_cluster

JOBS = {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}}
FLAGS = {"ps_hosts": "a:1", "worker_hosts": "b:1,c:1"}


def tf_config(job, index, **more):
  cluster = dict({"ps": ["a:1"], "worker": ["b:1", "c:1"]}, **more)
  return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def refusal(**kwargs):
  with pytest.raises(ClusterError) as error:
    resolve_cluster(**kwargs)
  return str(error.value)


def test_flags_alone():
  cluster = resolve_cluster(job_name="worker", task_index=1, **FLAGS)
  assert cluster.jobs == JOBS
  assert cluster.task.name == "/job:worker/task:1"
  assert cluster.source == "flags"


@pytest.mark.parametrize("flags", [{}, {"ps_hosts": "", "worker_hosts": [], "job_name": ""}])
def test_tf_config_alone(flags):
  cluster = resolve_cluster(tf_config=tf_config("worker", 1), **flags)
  assert cluster.jobs == JOBS
  assert cluster.task.name == "/job:worker/task:1"
  assert cluster.source == "TF_CONFIG"


def test_both_where_they_agree():
  cluster = resolve_cluster(
    job_name="master",
    task_index=0,
    chief_hosts=["d:1"],
    evaluator_hosts="e:1",
    tf_config=tf_config("chief", "0", master=["d:1"], evaluator=["e:1"]),
    **FLAGS,
  )
  assert cluster.jobs == dict(JOBS, chief={0: "d:1"})
  assert cluster.source == "flags and TF_CONFIG"


def test_the_workers_of_this_job_come_from_the_flag():
  assert resolve_cluster(tf_config=tf_config("worker", 1), job_workers="1").job_workers == (1,)
  assert resolve_cluster(job_name="worker", task_index=1, job_workers="1", **FLAGS).job_workers == (
    1,
  )


@pytest.mark.parametrize("flags", [
    {"ps_hosts": "a:1"}, {"job_name": "worker"}, {"task_index": 1}])
def test_tells_that_flags_were_given_too(flags):
  cluster = resolve_cluster(tf_config=tf_config("worker", 1), **flags)
  assert cluster.source == "flags and TF_CONFIG"


@pytest.mark.parametrize("flags, said", [
    ({"ps_hosts": "x:1"}, '--ps_hosts is "x:1", but TF_CONFIG cluster.ps is "a:1"'),
    ({"worker_hosts": "c:1,b:1"},
     '--worker_hosts is "c:1,b:1", but TF_CONFIG cluster.worker is "b:1,c:1"'),
    ({"chief_hosts": "d:1"}, '--chief_hosts is "d:1", but TF_CONFIG has no cluster.chief'),
    ({"job_name": "ps"}, '--job_name is "ps", but TF_CONFIG task.type is "worker"'),
    ({"task_index": 0}, '--task_index is "0", but TF_CONFIG task.index is "1"'),
])
def test_refuses_a_contradiction(flags, said):
  assert refusal(tf_config=tf_config("worker", 1), **flags) == (
      said + ": make them the same, or leave one away")


def test_no_list_agrees_with_indices_that_have_gaps():
  given = json.dumps({"cluster": {"worker": {"1": "b:1"}}, "task": {"type": "worker", "index": 1}})
  assert refusal(tf_config=given, worker_hosts="b:1").startswith(
      '--worker_hosts is "b:1", but TF_CONFIG cluster.worker is "1=b:1"')


@pytest.mark.parametrize("given", [{}, {"tf_config": " "}, {"job_name": "worker", "task_index": 0}])
def test_refuses_no_description(given):
  message = refusal(**given)
  assert message.startswith("no cluster is described: give --ps_hosts, --worker_hosts, --job_name ")
  assert "TF_CONFIG" in message


@pytest.mark.parametrize("flags, name", [
    (dict(FLAGS, implied_job="ps"), "/job:ps/task:0"),
    (dict(FLAGS, implied_job="worker", task_index=1), "/job:worker/task:1"),
    (dict(FLAGS, implied_job="worker", job_name="worker", task_index=1), "/job:worker/task:1"),
    (dict(FLAGS, implied_job="worker", job_name="chief", chief_hosts="d:1"), "/job:chief/task:0"),
    (dict(FLAGS, implied_job="worker", job_name="master", chief_hosts="d:1"), "/job:chief/task:0"),
    (dict(FLAGS, implied_job="evaluator"), "/job:evaluator/task:0"),
    (dict(ps_hosts="a:1", worker_hosts="b:1", implied_job="worker"), "/job:worker/task:0"),
    (dict(ps_hosts="a:1", chief_hosts="b:1", implied_job="worker"), "/job:chief/task:0"),
    (dict(tf_config=tf_config("ps", 0), implied_job="ps"), "/job:ps/task:0"),
    (dict(tf_config=tf_config("chief", 0, chief=["d:1"]), implied_job="worker"),
     "/job:chief/task:0"),
])
def test_what_a_program_implies(flags, name):
  assert resolve_cluster(**flags).task.name == name


@pytest.mark.parametrize("flags, message", [
    (dict(FLAGS, implied_job="worker"),
     "--task_index is missing: give this task's index in its job, from 0"),
    (dict(FLAGS, ps_hosts="a:1,d:1", implied_job="ps"),
     "--task_index is missing: give this task's index in its job, from 0"),
    (FLAGS, "--job_name is missing: it is one of evaluator, ps, worker"),
    (dict(FLAGS, job_name="worker", implied_job="ps"),
     '--job_name is "worker", which tf1ps-ps does not run: start tf1ps-worker'),
    (dict(FLAGS, job_name="ps", implied_job="worker"),
     '--job_name is "ps", which tf1ps-worker does not run: start tf1ps-ps'),
    (dict(FLAGS, job_name="evaluator", implied_job="worker"),
     '--job_name is "evaluator", which tf1ps-worker does not run: start tf1ps-evaluator'),
    (dict(tf_config=tf_config("worker", 0), implied_job="evaluator"),
     'TF_CONFIG task.type is "worker", which tf1ps-evaluator does not run: start tf1ps-worker'),
    (dict(FLAGS, job_name="wroker", implied_job="worker"),
     '--job_name: there is no job "wroker": did you mean "worker"?'),
])
def test_refuses_what_the_program_does_not_run(flags, message):
  assert refusal(**flags) == message


@pytest.mark.parametrize("given, where", [
    ({"worker_hosts": "b:1", "job_name": "worker"}, "--ps_hosts"),
    ({"tf_config": '{"cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
      "job_name": "worker"}, "TF_CONFIG cluster.ps"),
])
def test_needs_a_ps(given, where):
  assert refusal(needs_ps="between_graph", **given) == (
      "between_graph needs at least one ps: give " + where)


def test_answers_without_tensorflow():
  program = ("import sys\n"
             "from tf1ps.cluster import description, exposure, session_config\n"
             "sys.exit('tensorflow' in sys.modules)\n")
  root = pathlib.Path(__file__).parents[2]
  assert subprocess.call([sys.executable, "-c", program], timeout=60, cwd=str(root)) == 0
