from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Cluster, ClusterError
from tf1ps.cluster.parsing import (
  from_cluster_spec,
  from_tf_config,
  parse_job_workers,
  resolve_cluster,
)

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
    tf_config=tf_config("chief", "0", master=["d:1"]),
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
    ({"job_name": "ps"}, '--job_name is "ps", but TF_CONFIG task.type is "worker"'),
    ({"task_index": 0}, '--task_index is "0", but TF_CONFIG task.index is "1"'),
])
def test_refuses_a_contradiction(flags, said):
  assert refusal(tf_config=tf_config("worker", 1), **flags) == (
      said + ": make them the same, or leave one out")


def test_refuses_a_flag_for_a_job_that_tf_config_lacks():
  given = json.dumps({"cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})
  assert refusal(tf_config=given, ps_hosts="a:1") == (
    '--ps_hosts is "a:1", but TF_CONFIG has no cluster.ps: make them the same, or leave one out')


@pytest.mark.parametrize("name", ["chief", "master"])
def test_flags_describe_no_chief_beside_the_workers(name):
  assert refusal(job_name=name, implied_job="worker", **FLAGS) == (
    '--job_name is "chief", but worker 0 is the chief of a cluster that flags describe: give '
    "--job_name=worker --task_index=0, or set TF_CONFIG")


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
    (dict(FLAGS, implied_job="evaluator"), "/job:evaluator/task:0"),
    (dict(ps_hosts="a:1", worker_hosts="b:1", implied_job="worker"), "/job:worker/task:0"),
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
    (FLAGS, "--job_name is missing: give one of evaluator, ps, worker"),
    (dict(FLAGS, job_name="worker", implied_job="ps"),
     '--job_name is "worker", which tf1ps-ps does not run: start tf1ps-worker'),
    (dict(FLAGS, job_name="ps", implied_job="worker"),
     '--job_name is "ps", which tf1ps-worker does not run: start tf1ps-ps'),
    (dict(FLAGS, job_name="evaluator", implied_job="worker"),
     '--job_name is "evaluator", which tf1ps-worker does not run: start tf1ps-evaluator'),
    (dict(tf_config=tf_config("worker", 0), implied_job="evaluator"),
     'TF_CONFIG task.type is "worker", which tf1ps-evaluator does not run: start tf1ps-worker'),
    (dict(tf_config=tf_config("chief", 0, chief=["d:1"]), implied_job="evaluator"),
     'TF_CONFIG task.type is "chief", which tf1ps-evaluator does not run: start tf1ps-worker'),
    (dict(FLAGS, job_name="wroker", implied_job="worker"),
     '--job_name: "wroker" is not a job: did you mean "worker"?'),
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
             "from tf1ps.cluster import description, network, parsing, session_config, signals\n"
             "sys.exit('tensorflow' in sys.modules)\n")
  root = pathlib.Path(__file__).parents[2]
  assert subprocess.call([sys.executable, "-c", program], timeout=60, cwd=str(root)) == 0


# Flags.


def test_lists_and_texts_with_blanks_are_the_same():
  cluster = resolve_cluster(" a:1 , b:1", ["c:1", " d:1"], "worker", 1)
  assert cluster == Cluster(
      {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}}, "worker", 1,
      source="flags")
  assert cluster.source == "flags"


def test_an_evaluator_needs_no_address():
  cluster = resolve_cluster("a:1", "b:1", "evaluator", 0)
  assert cluster.task == ("evaluator", 0, "")


@pytest.mark.parametrize("hosts", ["a:1,", "a:1,,b:1", ["a:1", ""]])
def test_refuses_a_comma_too_many(hosts):
  with pytest.raises(ClusterError, match="--ps_hosts: an address is empty"):
    resolve_cluster(hosts, "c:1", "ps", 0)


def test_refuses_what_the_check_refuses():
  with pytest.raises(ClusterError, match='did you mean "worker"'):
    resolve_cluster("a:1", "b:1", "wroker", 0)


@pytest.mark.parametrize("text, indices", [
    (None, None), ("", None), ("0", (0,)), ("2-3", (2, 3)), ("0,2-4", (0, 2, 3, 4)),
    (" 4 - 5 , 1 ", (1, 4, 5)), ("1-2,2", (1, 2)), ([3, 1], (1, 3)), ((), ()),
])
def test_parse_job_workers(text, indices):
  assert parse_job_workers(text) == indices


@pytest.mark.parametrize("text, part", [
    ("a", "a"), ("0,", ""), ("-1", "-1"), ("1:3", "1:3"), ("1, 0-999999999", " 0-999999999")])
def test_parse_job_workers_refuses(text, part):
  with pytest.raises(ClusterError) as error:
    parse_job_workers(text)
  assert str(error.value) == (
      f'--job_workers: "{part}" of "{text}" is neither an index nor a range: '
      'write "2-3" or "0,2-4"')


def test_parse_job_workers_refuses_a_range_that_goes_down():
  with pytest.raises(ClusterError) as error:
    parse_job_workers("3-2")
  assert str(error.value) == '--job_workers: the range "3-2" goes down: write "2-3"'


# TF_CONFIG.


CLUSTER = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
EXAMPLE = ('{"cluster": {"ps": ["host:port"], "worker": ["host:port"]}, '
           '"task": {"type": "worker", "index": 0}}')


def text(cluster, job, index):
  return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def refused_text(given):
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


@pytest.mark.parametrize("cluster, address", [
    ({"cluster": {"evaluator": ["e:1"]}}, "e:1"), ({"cluster": {}}, ""), ({}, "")])
def test_an_evaluator_needs_no_other_task(cluster, address):
  given = json.dumps(dict(cluster, task={"type": "evaluator", "index": 0}))
  cluster = resolve_cluster(tf_config=given, implied_job="evaluator")
  assert cluster.jobs == {} and not cluster.is_chief and cluster.ps == []
  assert cluster.task == ("evaluator", 0, address)
  assert cluster.describe().split("\n")[-2:] == [
    "TF_CONFIG names no task that trains: this evaluator needs only the checkpoint directory",
    "this task: /job:evaluator/task:0, from TF_CONFIG"]
  with pytest.raises(ClusterError, match="it names only the evaluator: give TF_CONFIG cluster.wor"):
    cluster.chief  # noqa: B018


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
    (100000 * "[", "TF_CONFIG is nested too deeply to be read: write " + EXAMPLE),
    ("[]", "TF_CONFIG is not an object, but []: write " + EXAMPLE),
    ("[%s]" % (200 * "7"), "TF_CONFIG is not an object, but [%s...: write %s" % (
      199 * "7", EXAMPLE)),
    ("{}", 'TF_CONFIG has no "cluster", only an empty object: write ' + EXAMPLE),
    ('{"cluster": []}', "TF_CONFIG cluster is not an object, but []: write " + EXAMPLE),
    ('{"task": {"type": "ps", "index": 0}}',
     'TF_CONFIG has no "cluster", only "task": write ' + EXAMPLE),
    (text({"evaluator": ["e:1"]}, "worker", 0),
     "the cluster has no tasks: give TF_CONFIG cluster.worker"),
    ('{"cluster": {"worker": ["a:1"]}}',
     'TF_CONFIG has no "task", only "cluster": write ' + EXAMPLE),
    ('{"cluster": {"worker": ["a:1"]}, "task": 0}',
     "TF_CONFIG task is not an object, but 0: write " + EXAMPLE),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"index": 0}}',
     'TF_CONFIG task has no "type": give this task\'s job, as in {"type": "worker", "index": 0}'),
    ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
     "TF_CONFIG task.index is missing: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", "zero"),
     'TF_CONFIG task.index: "zero" is not an integer: give this task\'s index in its job, from 0'),
    (text(CLUSTER, "worker", 1.5),
     "TF_CONFIG task.index: 1.5 is not an integer: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", None),
     "TF_CONFIG task.index: null is not an integer: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", True),
     "TF_CONFIG task.index: true is not an integer: give this task's index in its job, from 0"),
    (text(CLUSTER, "worker", 2),
     "TF_CONFIG task.index: 2 is out of range: the worker tasks are 0 to 1"),
    (text(CLUSTER, "worker", "-1"),
     "TF_CONFIG task.index: -1 is negative: the worker tasks are 0 to 1"),
    (text(CLUSTER, "wroker", 0),
     'TF_CONFIG task.type: "wroker" is not a job: did you mean "worker"?'),
    (text(CLUSTER, ["ps"], 0),
     'TF_CONFIG task.type: ["ps"] is not a job: did you mean "ps"?'),
    (text(CLUSTER, "chief", 0),
     'TF_CONFIG task.type is "chief", but TF_CONFIG cluster.chief is not given: give it, or use '
     "one of evaluator, ps, worker"),
    (text(dict(CLUSTER, workers=["d:1"]), "ps", 0),
     'TF_CONFIG cluster: "workers" is not a job: did you mean "worker"?'),
    (text(dict(CLUSTER, master=["d:1"], chief=["d:1"]), "ps", 0),
     'TF_CONFIG cluster has both "master" and "chief", which are names of the same job: keep '
     '"chief"'),
    (text(dict(CLUSTER, ps="a:1"), "ps", 0),
     "TF_CONFIG cluster.ps: 'a:1' is not a list of addresses: write [\"host:port\", ...]"),
    (text(dict(CLUSTER, ps=[]), "worker", 0),
     "TF_CONFIG cluster.ps has no tasks: give it an address, or leave it out"),
    (text(dict(CLUSTER, ps=[7]), "worker", 0),
     'TF_CONFIG cluster.ps[0]: 7 is not a string: write "host:port"'),
    (text(dict(CLUSTER, master=["d"]), "worker", 0),
     'TF_CONFIG cluster.master[0]: "d" has no port: write host:port, as in "d:2222"'),
    (text(dict(CLUSTER, evaluator={"-1": "d:1"}), "worker", 0),
     "TF_CONFIG cluster.evaluator[-1]: the index -1 is negative: count from 0"),
    (text(dict(CLUSTER, evaluator=["a:1"]), "worker", 0),
     "TF_CONFIG cluster.evaluator[0]: a:1 of /job:evaluator/task:0 is already the address of "
     "/job:ps/task:0 (TF_CONFIG cluster.ps[0]): each task needs its own"),
])
def test_refuses_a_tf_config(given, message):
  assert refused_text(given) == message


# A ClusterSpec.


SPEC = {"ps": ["a:1", "b:1"], "worker": {0: "c:1", 2: "d:1"}}
SPARSE_JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 2: "d:1"}}


def refused_spec(*args):
  with pytest.raises(ClusterError) as error:
    from_cluster_spec(*args)
  return str(error.value)


@pytest.mark.parametrize("make", [
    dict, tf.train.ClusterSpec, lambda spec: tf.train.ClusterSpec(spec).as_cluster_def()])
def test_takes_what_a_server_takes(make):
  cluster = from_cluster_spec(make(SPEC), "worker", 2)
  assert cluster.jobs == SPARSE_JOBS
  assert cluster.task == ("worker", 2, "d:1")
  assert cluster.source == "ClusterSpec"


def server_def():
  cluster_def = tf.train.ClusterSpec(SPEC).as_cluster_def()
  return tf.train.ServerDef(cluster=cluster_def, job_name="ps", task_index=1, protocol="grpc")


def test_takes_a_server_def():
  cluster = from_cluster_spec(server_def())
  assert cluster.jobs == SPARSE_JOBS
  assert cluster.task == ("ps", 1, "b:1")


def test_arguments_override_a_server_def():
  assert from_cluster_spec(server_def(), "worker", 2).task == ("worker", 2, "d:1")


def test_a_server_def_without_a_job_is_refused():
  given = server_def()
  given.job_name = ""
  assert refused_spec(given) == "job_name is missing: give one of ps, worker"


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
    ((SPEC,), "job_name is missing: give one of ps, worker"),
    ((SPEC, "ps"), "task_index is missing: give this task's index in its job, from 0"),
    ((SPEC, "wroker"), 'job_name: "wroker" is not a job: did you mean "worker"?'),
    ((SPEC, "worker", 1), "task_index: 1 is out of range: the worker tasks are 0, 2"),
    ((SPEC, "worker", "0"), "task_index: '0' is not an integer: give this task's index in its "
                            "job, from 0"),
    (({"ps": "a:1"}, "ps", 0), "ClusterSpec ps: 'a:1' is not a list of addresses: write "
                               '["host:port", ...]'),
    (({"ps": {"a": "a:1"}}, "ps", 0),
     "ClusterSpec ps: the index 'a' is not a number: count from 0"),
    (({"ps": {0: "a:1", "0": "b:1"}}, "ps", 0),
     "ClusterSpec ps: the index 0 is given twice: give each task its own"),
    (({"ps": ["a:0", "b:1"]}, "ps", 0),
     'ClusterSpec ps[0]: the port of "a:0" is 0, so that the system would choose a port that '
     "no other task knows: give a port from 1 to 65535"),
    ((["a:1"],),
     "['a:1'] does not describe a cluster: give a ServerDef, ClusterDef, ClusterSpec or a dict "
     'such as {"ps": ["host:2222"], "worker": ["host:2223"]}'),
    (({7: ["a:1"], "ps": ["b:1"]}, "ps", 0),
     "ClusterSpec 7: 7 is not a job name: it begins with a letter and contains letters, "
     "digits and underscores"),
    (({},), "the cluster has no tasks: give ClusterSpec worker"),
])
def test_refuses_a_spec(args, message):
  assert refused_spec(*args) == message
