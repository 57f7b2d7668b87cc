"""The resolvers, with the variables that each scheduler really sets."""
from __future__ import annotations

import json

import pytest

from tf1ps.cluster.description import ClusterError
from tf1ps.cluster.parsing import resolve_cluster
from tf1ps.cluster.resolvers import (
  JobCounts,
  expand_nodes,
  expand_tasks_per_node,
  resolve_environment,
  with_chief,
)

pytestmark = pytest.mark.any_tensorflow

CONFIG = json.dumps({"cluster": {"ps": ["a:1"], "worker": ["b:1"]},
                     "task": {"type": "worker", "index": 0}})


def cluster_of(name, environ, counts=JobCounts(), **flags):  # noqa: B008
  """The cluster that a program of these flags in this environment gets."""
  found = resolve_environment(name, environ, bool(flags), counts)
  return resolve_cluster(tf_config=found.tf_config, source=found.source, **flags)


def refusal(name, environ, counts=JobCounts(), **flags):  # noqa: B008
  with pytest.raises(ClusterError) as error:
    cluster_of(name, environ, counts, **flags)
  return str(error.value)


# Slurm.


def slurm(rank, nodes="node[1-3]", per_node="2(x3)", tasks=6, place=None, **more):
  """The environment of a task that srun has started."""
  node, local = place or (rank // 2, rank % 2)
  return dict(
    SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS=str(tasks), SLURM_STEP_NODELIST=nodes,
    SLURM_STEP_TASKS_PER_NODE=per_node, SLURM_NODEID=str(node), SLURM_LOCALID=str(local),
    # The job's: more nodes and tasks than the step has.
    SLURM_JOB_ID="17", SLURM_NTASKS="9", SLURM_JOB_NODELIST="node[1-9]",
    SLURM_TASKS_PER_NODE="1(x9)", **more)


@pytest.mark.parametrize("text, nodes", [
  ("a", ["a"]), ("a,b-2,c.d", ["a", "b-2", "c.d"]),
  ("node[01-03,07]", ["node01", "node02", "node03", "node07"]),
  ("gpu-a1b[2-4]x", ["gpu-a1b2x", "gpu-a1b3x", "gpu-a1b4x"]),
  ("a[1-2]b[1-2]", ["a1b1", "a1b2", "a2b1", "a2b2"]),
  ("a[8-11],b[09-10],c", ["a8", "a9", "a10", "a11", "b09", "b10", "c"]),
  ("n[1-2],m5,o[3-4,6]", ["n1", "n2", "m5", "o3", "o4", "o6"]),
  ("r[1-2]-n[098-100]", ["r1-n098", "r1-n099", "r1-n100", "r2-n098", "r2-n099", "r2-n100"]),
  ("10.0.0.[7-8]", ["10.0.0.7", "10.0.0.8"])])
def test_the_nodes_of_a_list(text, nodes):
  assert expand_nodes(text) == nodes


@pytest.mark.parametrize("text, reason", [
  ("", '"" is not the name'), ("a,,b", '"" is not the name'), ("a b", '"a b" is not the name'),
  ("a[1-2", "brackets are not in pairs"), ("a1-2]", "brackets are not in pairs"),
  ("a[[1]]", "brackets are not in pairs"), ("a[]", '"" in brackets'), ("a[x-y]", '"x-y" in'),
  ("a[1-]", '"1-" in'), ("a[3-1]", 'the range "3-1" goes down'),
  ("a[0-99999999]", "more than 65536 nodes"), ("a[1-999]b[1-999]", "more than 65536 nodes")])
def test_a_list_that_is_none(text, reason):
  with pytest.raises(ClusterError) as error:
    expand_nodes(text)
  assert str(error.value).startswith('SLURM_STEP_NODELIST is "%s": ' % text)
  assert reason in str(error.value)


@pytest.mark.parametrize("text, counts", [
  ("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("1,2(x2),3", [1, 2, 2, 3])])
def test_the_tasks_of_each_node(text, counts):
  assert expand_tasks_per_node(text) == counts


@pytest.mark.parametrize("text, part", [("2(x3", "2(x3"), ("two", "two"), ("2,,1", "")])
def test_tasks_per_node_that_are_none(text, part):
  with pytest.raises(ClusterError, match='"%s": "' % text.replace("(", "[(]")):
    expand_tasks_per_node(text)


def test_a_step_of_slurm():
  clusters = [cluster_of("slurm", slurm(rank), JobCounts(2, evaluator=True)) for rank in range(6)]
  assert [(each.job_name, each.task_index) for each in clusters] == [
    ("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 2), ("evaluator", 0)]
  for each in clusters:
    assert each.jobs == {
      "ps": {0: "node1:2222", 1: "node1:2223"},
      "worker": {0: "node2:2222", 1: "node2:2223", 2: "node3:2222"}}
    assert each.source == "Slurm"
  assert clusters[2].is_chief


def test_nodes_with_different_numbers_of_tasks():
  environ = slurm(3, nodes="a,b", per_node="1,3", tasks=4, place=(1, 2))
  assert cluster_of("slurm", environ, JobCounts(port=7000)).jobs == {
    "ps": {0: "a:7000"}, "worker": {0: "b:7000", 1: "b:7001", 2: "b:7002"}}


def test_a_cyclic_distribution():
  """One task for each node in turn; a full node is passed over."""
  environ = slurm(2, nodes="a,b", per_node="1,3", tasks=4, place=(1, 1),
                  SLURM_DISTRIBUTION="cyclic:block")
  assert cluster_of("slurm", environ).jobs == {
    "ps": {0: "a:2222"}, "worker": {0: "b:2222", 1: "b:2223", 2: "b:2224"}}
  environ = slurm(1, place=(1, 0), SLURM_DISTRIBUTION="cyclic")
  assert cluster_of("slurm", environ, JobCounts(3)).jobs["ps"] == {
    0: "node1:2222", 1: "node2:2222", 2: "node3:2222"}


@pytest.mark.parametrize("distribution, places", [
  (None, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (2, 0)]),
  ("cyclic", [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (0, 3)])])
def test_the_places_that_slurm_gives(distribution, places):
  """As Slurm 22.05 gave them: node and local id of each rank of srun -N3 -n6."""
  more = {"SLURM_DISTRIBUTION": distribution} if distribution else {}
  addresses = ["node%d:%d" % (node + 1, 2222 + local) for node, local in places]
  for rank, place in enumerate(places):
    cluster = cluster_of("slurm", slurm(rank, per_node="4,1(x2)", place=place, **more))
    assert [task.address for task in cluster.ps + cluster.replicas] == addresses
    assert cluster.task.address == addresses[rank]


def test_no_ps():
  cluster = cluster_of("slurm", slurm(0), JobCounts(default_ps=0))
  assert list(cluster.jobs) == ["worker"] and len(cluster.replicas) == 6


@pytest.mark.parametrize("changes, said", [
  ({name: None}, "%s is missing in the environment: start every task with srun, which sets it" %
   name) for name in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
                      "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_LOCALID")] + [
  ({"SLURM_PROCID": "-1"}, 'SLURM_PROCID is "-1", which is not a number from 0 on'),
  ({"SLURM_PROCID": "6"}, "SLURM_PROCID is 6, but SLURM_STEP_NUM_TASKS is 6: ranks count from 0"),
  ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"},
   "SLURM_STEP_NODELIST has 3 nodes (node[1-3]), but SLURM_STEP_TASKS_PER_NODE has 2 (2(x2))"),
  ({"SLURM_STEP_TASKS_PER_NODE": "2,1,2"},
   "SLURM_STEP_TASKS_PER_NODE is 2,1,2, which makes 5 tasks, but SLURM_STEP_NUM_TASKS is 6"),
  ({"SLURM_DISTRIBUTION": "arbitrary"}, "SLURM_DISTRIBUTION is arbitrary, whose ranks it does not "
   "know: give srun --distribution=block or cyclic"),
  ({"SLURM_LOCALID": "1"}, "SLURM_NODEID=0 and SLURM_LOCALID=1 are not the place of rank 0, which "
   "is task 0 of node 0 by the distribution block: give srun --distribution=block or cyclic")])
def test_a_step_that_cannot_be(changes, said):
  environ = dict(slurm(0), **changes)
  environ = {name: value for name, value in environ.items() if value is not None}
  assert refusal("slurm", environ) == "--cluster_resolver=slurm: " + said


@pytest.mark.parametrize("counts, needed", [
  (JobCounts(6), "6 ps and a worker need 7"),
  (JobCounts(5, True), "5 ps, a worker and the evaluator need 7")])
def test_too_few_tasks(counts, needed):
  assert refusal("slurm", slurm(0), counts) == (
    "--cluster_resolver=slurm: there are 6 tasks, but %s at least: raise srun --ntasks, or give "
    "another --num_ps" % needed)


# JobSet.


def jobset(role, index=0, **more):
  return dict(dict(JOBSET_NAME="digits", REPLICATED_JOB_NAME=role, JOB_INDEX="0", NUM_PS="2",
                   JOB_COMPLETION_INDEX=str(index), NUM_WORKERS="3"), **more)


@pytest.mark.parametrize("role, index, job, task", [
  ("ps", 1, "ps", 1), ("chief", 0, "worker", 0), ("worker", 0, "worker", 1),
  ("worker", 1, "worker", 2), ("evaluator", 0, "evaluator", 0)])
def test_a_jobset(role, index, job, task):
  cluster = cluster_of("jobset", jobset(role, index))
  assert (cluster.job_name, cluster.task_index) == (job, task)
  assert cluster.jobs == {
    "ps": {0: "digits-ps-0-0.digits:2222", 1: "digits-ps-0-1.digits:2222"},
    "worker": {0: "digits-chief-0-0.digits:2222", 1: "digits-worker-0-0.digits:2222",
               2: "digits-worker-0-1.digits:2222"}}
  assert cluster.is_chief == (role == "chief")


@pytest.mark.parametrize("changes, said", [
  ({"JOBSET_NAME": ""}, "JOBSET_NAME is missing in the environment: set it in the manifest of the "
   "JobSet"),
  ({"NUM_PS": ""}, "NUM_PS is missing in the environment: set it in the manifest of the JobSet"),
  ({"NUM_WORKERS": "0"}, "NUM_WORKERS is 0, but the chief is a worker, too: count it"),
  ({"REPLICATED_JOB_NAME": "trainer"}, "REPLICATED_JOB_NAME must be one of ps, chief, worker, "
   'evaluator, got "trainer": give the replicated job the name of its role'),
  ({"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX is 2, but with 2 ps and NUM_WORKERS=3 the "
   "replicated job worker has completions: 2"),
  ({"JOB_INDEX": "1"}, "JOB_INDEX is 1, but each role is a single Job with a pod per task: give "
   "the replicated job worker `replicas: 1`, and completions and parallelism for its tasks")])
def test_a_jobset_that_cannot_be(changes, said):
  assert refusal("jobset", dict(jobset("worker"), **changes)) == (
    "--cluster_resolver=jobset: " + said)


def test_a_flag_that_contradicts_the_manifest():
  assert refusal("jobset", jobset("ps"), JobCounts(num_ps=3)) == (
    "--cluster_resolver=jobset: --num_ps is 3, but NUM_PS is 2: make them the same, or leave one "
    "out")
  assert len(cluster_of("jobset", jobset("ps", NUM_PS=""), JobCounts(num_ps=3)).ps) == 3


# Indexed Job.


def indexed(rank, **more):
  return dict(dict(JOB_COMPLETION_INDEX=str(rank), JOB_NAME="fit", NUM_PS="1", NUM_TASKS="4"),
              **more)


def test_an_indexed_job():
  clusters = [cluster_of("indexed_job", indexed(rank), JobCounts(evaluator=True, port=9000))
              for rank in range(4)]
  assert [(each.job_name, each.task_index) for each in clusters] == [
    ("ps", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)]
  assert clusters[3].jobs == {"ps": {0: "fit-0.fit:9000"},
                              "worker": {0: "fit-1.fit:9000", 1: "fit-2.fit:9000"}}


def test_an_indexed_job_that_cannot_be():
  assert refusal("indexed_job", indexed(0, JOB_NAME="")).endswith(
    "JOB_NAME is missing in the environment: set it in the manifest of the Job")
  assert refusal("indexed_job", indexed(4)).endswith(
    "JOB_COMPLETION_INDEX is 4, but NUM_TASKS is 4: ranks count from 0")
  assert refusal("indexed_job", indexed(0, NUM_PS="4")).endswith(
    "there are 4 tasks, but 4 ps and a worker need 5 at least: raise completions and NUM_TASKS, or "
    "give another --num_ps")


# TF_CONFIG, as it is.

TFJOB = {"cluster": {"ps": ["t-ps-0.ns.svc:2222"], "master": ["t-master-0.ns.svc:2222"],
                     "worker": ["t-worker-0.ns.svc:2222"]},
         "task": {"type": "worker", "index": 0}, "environment": "cloud"}
VOLCANO = {"cluster": {"ps": ["v-ps-0.v:2222"], "worker": ["v-worker-0.v:2222"],
                       "evaluator": ["v-evaluator-0.v:2222"]},
           "task": {"type": "evaluator", "index": 0}}


def test_the_tf_config_of_a_tfjob():
  cluster = cluster_of("auto", {"TF_CONFIG": json.dumps(TFJOB)})
  assert cluster.chief.address == "t-master-0.ns.svc:2222" and cluster.source == "TF_CONFIG"
  assert cluster.replica_index == 1


def test_the_tf_config_of_volcano():
  environ = {"TF_CONFIG": json.dumps(VOLCANO), "VC_TASK_INDEX": "0", "VC_PS_HOSTS": "v-ps-0.v"}
  found = resolve_environment("auto", environ)
  assert str(found) == "--cluster_resolver=auto found volcano, by TF_CONFIG, VC_TASK_INDEX=0"
  for name in "auto", "volcano", "tf_config":
    assert cluster_of(name, environ).job_name == "evaluator"
  assert refusal("volcano", {}) == (
    "--cluster_resolver=volcano: TF_CONFIG is missing in the environment: add the plugin "
    "tensorflow to the Volcano job")


# Which one.


@pytest.mark.parametrize("environ, has_hosts, resolver, by, ignored", [
  ({}, True, "flags", "the host flags", ()),
  (slurm(0), True, "flags", "the host flags", ("slurm",)),
  ({"TF_CONFIG": CONFIG}, False, "tf_config", "TF_CONFIG", ()),
  (dict(slurm(0), TF_CONFIG=CONFIG), False, "tf_config", "TF_CONFIG", ("slurm",)),
  (jobset("ps"), False, "jobset",
   "JOBSET_NAME=digits, REPLICATED_JOB_NAME=ps, JOB_INDEX=0, JOB_COMPLETION_INDEX=0, NUM_PS=2, "
   "NUM_WORKERS=3", ()),
  (dict(indexed(0), **slurm(0)), False, "indexed_job",
   "JOB_COMPLETION_INDEX=0, JOB_NAME=fit, NUM_PS=1, NUM_TASKS=4", ("slurm",)),
  (slurm(0), False, "slurm",
   "SLURM_STEP_NUM_TASKS=6, SLURM_PROCID=0, SLURM_NODEID=0, SLURM_LOCALID=0, "
   "SLURM_STEP_NODELIST=node[1-3], SLURM_STEP_TASKS_PER_NODE=2(x3)", ())])
def test_auto_says_what_it_found(environ, has_hosts, resolver, by, ignored):
  found = resolve_environment("auto", environ, has_hosts)
  also = "; it leaves out " + ", ".join(ignored) if ignored else ""
  assert str(found) == "--cluster_resolver=auto found %s, by %s%s" % (resolver, by, also)
  assert found.resolver == resolver and found.ignored == ignored


@pytest.mark.parametrize("environ", [
  {}, {"TF_CONFIG": " ", "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "a", "NUM_PS": "1"}])
def test_auto_finds_nothing(environ):
  assert resolve_environment("auto", environ) is None


def test_a_step_beside_the_job_does_not_describe_it():
  """Such as that of srun --overlap tf1ps-status."""
  environ = slurm(0, nodes="a", per_node="1", tasks=1)
  assert resolve_environment("auto", environ, is_task=False) is None
  assert resolve_environment("auto", dict(environ, **jobset("ps")), is_task=False).resolver == (
    "jobset")
  with pytest.raises(ClusterError, match="there is 1 task, but 1 ps and a worker need 2"):
    resolve_environment("slurm", environ, is_task=False)


def test_a_batch_script_is_no_step():
  """Slurm sets these for the script of sbatch, which runs on the first node alone."""
  environ = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
  assert refusal("auto", environ) == (
    "--cluster_resolver=slurm: SLURM_STEP_NUM_TASKS is missing in the environment: start every "
    "task with srun, which sets it")


def test_flags_and_tf_config_have_to_agree_unless_one_is_named():
  environ, hosts = {"TF_CONFIG": CONFIG}, {"ps_hosts": "x:1", "worker_hosts": "b:1"}
  said = '--ps_hosts is "x:1", but TF_CONFIG cluster.ps is "a:1"'
  assert refusal("auto", environ, **hosts).startswith(said)
  assert refusal("tf_config", environ, **hosts).startswith(said)
  cluster = cluster_of("flags", environ, job_name="ps", **hosts)
  assert cluster.task.address == "x:1" and cluster.source == "flags"
  assert refusal("flags", environ) == (
    "--cluster_resolver=flags: give --ps_hosts, --worker_hosts, --job_name and --task_index")


@pytest.mark.parametrize("flags, said", [
  ({"ps_hosts": "x:1"}, '--ps_hosts is "x:1", but Slurm cluster.ps is "node1:2222"'),
  ({"job_name": "worker"}, '--job_name is "worker", but Slurm task.type is "ps"'),
  ({"task_index": 1}, '--task_index is "1", but Slurm task.index is "0"')])
def test_a_flag_that_contradicts_a_scheduler(flags, said):
  assert refusal("slurm", slurm(0), **flags) == said + ": make them the same, or leave one out"


def test_a_program_that_does_not_run_this_task():
  assert refusal("slurm", slurm(0), implied_job="worker") == (
    'Slurm task.type is "ps", which tf1ps-worker does not run: start tf1ps-ps, or tf1ps-task for '
    "every task")


def test_a_port_that_is_too_high():
  assert refusal("slurm", slurm(0), JobCounts(port=65535)).startswith(
    'Slurm cluster.worker[0]: the port of "node1:65536" is above 65535')
  assert refusal("slurm", slurm(0), JobCounts(-1)) == "--num_ps is -1: give a number from 0 on"


# For estimators.


@pytest.mark.parametrize("rank, job, index", [
  (0, "ps", 0), (1, "chief", 0), (2, "worker", 0), (5, "worker", 3)])
def test_worker_0_as_the_chief(rank, job, index):
  found = resolve_environment("slurm", slurm(rank))
  config = json.loads(with_chief(found.tf_config))
  assert config == {
    "cluster": {"ps": ["node1:2222"], "chief": ["node1:2223"],
                "worker": ["node2:2222", "node2:2223", "node3:2222", "node3:2223"]},
    "task": {"type": job, "index": index}}
  assert resolve_cluster(tf_config=with_chief(found.tf_config)).chief.address == "node1:2223"


def test_a_chief_that_is_there_stays():
  assert with_chief(json.dumps(TFJOB)) == json.dumps(TFJOB)
