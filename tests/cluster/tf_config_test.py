from __future__ import annotations

import json

import pytest

from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.tf_config import from_tf_config

CLUSTER = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
EXAMPLE = ('{"cluster": {"ps": ["host:port"], "worker": ["host:port"]}, '
           '"task": {"type": "worker", "index": 0}}')


def text(cluster, job, index):
  return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def refusal(given):
  with pytest.raises(ClusterError) as error:
    from_tf_config(given)
  return str(error.value)


def test_worker_0_is_the_chief():
  cluster = from_tf_config(text(CLUSTER, "worker", 1))
  assert cluster.jobs == {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}}
  assert cluster.task == ("worker", 1, "c:1")
  assert cluster.chief == ("worker", 0, "b:1")
  assert cluster.source == "TF_CONFIG"


@pytest.mark.parametrize("key", ["chief", "master"])
@pytest.mark.parametrize("job", ["chief", "master"])
def test_a_chief_job_under_both_of_its_names(key, job):
  cluster = from_tf_config(text(dict(CLUSTER, **{key: ["d:1"]}), job, 0))
  assert sorted(cluster.jobs) == ["chief", "ps", "worker"]
  assert cluster.task == ("chief", 0, "d:1")
  assert cluster.is_chief


def test_a_master_beside_this_task_becomes_chief():
  cluster = from_tf_config(text(dict(CLUSTER, master=["d:1"]), "worker", 0))
  assert cluster.chief == ("chief", 0, "d:1")
  assert not cluster.is_chief


@pytest.mark.parametrize("inside, address", [
    ({"evaluator": ["e:1"]}, "e:1"), ({"evaluator": []}, ""), ({}, "")])
def test_the_evaluator_inside_and_outside_of_cluster(inside, address):
  cluster = from_tf_config(text(dict(CLUSTER, **inside), "evaluator", 0))
  assert sorted(cluster.jobs) == ["ps", "worker"]
  assert cluster.task == ("evaluator", 0, address)


def test_the_evaluator_does_not_change_the_digest():
  with_evaluator = from_tf_config(text(dict(CLUSTER, evaluator=["e:1"]), "ps", 0))
  assert with_evaluator.digest() == from_tf_config(text(CLUSTER, "worker", 0)).digest()


def test_an_index_as_text():
  assert from_tf_config(text(CLUSTER, "worker", "1")).task.address == "c:1"


def test_tasks_by_index_and_the_workers_of_this_job():
  cluster = from_tf_config(text({"worker": {"1": "b:1", "4": "c:1"}}, "worker", 4), job_workers="4")
  assert cluster.jobs == {"worker": {1: "b:1", 4: "c:1"}}
  assert cluster.chief == ("worker", 4, "c:1")


@pytest.mark.parametrize("given, message", [
    ('{"cluster": {,',
     "TF_CONFIG is not JSON: Expecting property name enclosed in double quotes at line 1, column "
     "14, near '{\"cluster\": {,': write " + EXAMPLE),
    ("[]", "TF_CONFIG is no object, but []: write " + EXAMPLE),
    ("{}", 'TF_CONFIG has no "cluster", only an empty object: write ' + EXAMPLE),
    ('{"cluster": []}', "TF_CONFIG cluster is no object, but []: write " + EXAMPLE),
    ('{"cluster": {"worker": ["a:1"]}}',
     'TF_CONFIG has no "task", only "cluster": write ' + EXAMPLE),
    ('{"cluster": {"worker": ["a:1"]}, "task": 0}',
     "TF_CONFIG task is no object, but 0: write " + EXAMPLE),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"index": 0}}',
     'TF_CONFIG task has no "type": give this task\'s job, as in {"type": "worker", "index": 0}'),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
     "TF_CONFIG task.index is missing: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", "zero"),
     'TF_CONFIG task.index: "zero" is no whole number: give this task\'s index in its job, from 0'),
    (text(CLUSTER, "worker", 1.5),
     "TF_CONFIG task.index: 1.5 is no whole number: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", None),
     "TF_CONFIG task.index: null is no whole number: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", True),
     "TF_CONFIG task.index: true is no whole number: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", 2),
     "TF_CONFIG task.index: 2 is out of range: the worker tasks are 0 to 1"),
    (text(CLUSTER, "worker", "-1"),
     "TF_CONFIG task.index: -1 is negative: the worker tasks are 0 to 1"),
    (text(CLUSTER, "wroker", 0),
     'TF_CONFIG task.type: there is no job "wroker": did you mean "worker"?'),
    (text(CLUSTER, ["ps"], 0),
     'TF_CONFIG task.type: there is no job ["ps"]: did you mean "ps"?'),
    (text(CLUSTER, "chief", 0),
     'TF_CONFIG task.type is "chief", but TF_CONFIG cluster.chief is not given: give it, or be one '
     "of evaluator, ps, worker"),
    (text(dict(CLUSTER, workers=["d:1"]), "ps", 0),
     'TF_CONFIG cluster: there is no job "workers": did you mean "worker"?'),
    (text(dict(CLUSTER, master=["d:1"], chief=["d:1"]), "ps", 0),
     'TF_CONFIG cluster has both "master" and "chief", which are names of the same job: keep '
     '"chief"'),
    (text(dict(CLUSTER, ps="a:1"), "ps", 0),
     "TF_CONFIG cluster.ps: 'a:1' is no list of addresses: write [\"host:port\", ...]"),
    (text(dict(CLUSTER, ps=[]), "worker", 0),
     "TF_CONFIG cluster.ps has no tasks: give it an address, or leave it away"),
    (text(dict(CLUSTER, ps=[7]), "worker", 0),
     'TF_CONFIG cluster.ps[0]: 7 is no text: write "host:port"'),
    (text(dict(CLUSTER, master=["d"]), "worker", 0),
     'TF_CONFIG cluster.master[0]: "d" has no port: write host:port, as in "d:2222"'),
    (text(dict(CLUSTER, evaluator={"-1": "d:1"}), "worker", 0),
     "TF_CONFIG cluster.evaluator[-1]: the index -1 is negative: count from 0"),
    (text(dict(CLUSTER, evaluator=["a:1"]), "worker", 0),
     "TF_CONFIG cluster.evaluator[0]: a:1 of /job:evaluator/task:0 is already the address of "
     "/job:ps/task:0 (TF_CONFIG cluster.ps[0]): each task needs its own"),
])
def test_refuses(given, message):
  assert refusal(given) == message


def test_tells_what_the_text_is_called():
  with pytest.raises(ClusterError, match=r"^job.json is not JSON"):
    from_tf_config("", source="job.json")
