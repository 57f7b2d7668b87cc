from __future__ import annotations

import json
import re
import socket

import pytest

from tests import docs_test, harness, program_tasks
from tests.cli import commands
from tests.cluster.resolvers_test import indexed, jobset, slurm
from tf1ps.cli import task
from tf1ps.cluster import ClusterError, Task, UnknownHostError, network, wait_for_names


@pytest.fixture
def environ(monkeypatch):
  """Sets the environment of this process; the variables of schedulers that it has are left out."""
  for name in (*slurm(0), *jobset("ps"), *indexed(0), "TF_CONFIG"):
    monkeypatch.delenv(name, raising=False)

  def change(variables):
    for name, value in variables.items():
      monkeypatch.setenv(name, value)

  return change


# Which task.


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("variables, argv, job, more", [
  (slurm(0), [], "ps", ["--cluster_resolver=slurm"]),
  (slurm(1), ["--num_ps", "2", "--steps=5", "--mine=6"], "ps", ["--cluster_resolver=slurm"]),
  (slurm(1), [], "worker", ["--cluster_resolver=slurm"]),
  (slurm(5), ["--evaluator"], "evaluator", ["--cluster_resolver=slurm"]),
  (slurm(0), ["--replication=all_reduce"], "worker", ["--cluster_resolver=slurm", "--num_ps=0"]),
  (slurm(0), ["--cluster_resolver=slurm"], "ps", []),
  (jobset("chief"), [], "worker", ["--cluster_resolver=jobset"]),
  (jobset("evaluator"), [], "evaluator", ["--cluster_resolver=jobset"]),
  (indexed(0), [], "ps", ["--cluster_resolver=indexed_job"]),
  ({"TF_CONFIG": json.dumps({"cluster": {"chief": ["a:1"], "ps": ["b:1"]},
                             "task": {"type": "chief", "index": 0}})}, [], "chief", []),
  (slurm(0), ["--ps_hosts=a:1", "--worker_hosts=b:1", "--job_name=worker"], "worker", [])])
def test_the_environment_names_the_task(environ, variables, argv, job, more):
  environ(variables)
  assert task._find_task(argv) == (job, more)


@pytest.mark.any_tensorflow
def test_the_program_may_bring_the_number_of_ps(environ, tmp_path):
  environ(slurm(2))
  program = commands.write(tmp_path, "p.py", 'FLAGS = {"num_ps": 3}\n')
  assert task._find_task([program])[0] == "ps"
  assert task._find_task([program, "--num_ps=1"])[0] == "worker"


@pytest.mark.any_tensorflow
def test_a_contradiction_names_both_values(environ):
  environ(slurm(0))
  with pytest.raises(ClusterError, match='--ps_hosts is "a:1", but Slurm cluster.ps is "node1:22'):
    task._find_task(["--cluster_resolver=slurm", "--ps_hosts=a:1"])


@pytest.mark.parametrize("argv, text", [
  ([], "no cluster was found: --cluster_resolver=auto looks for --ps_hosts and --worker_hosts, for "
   "TF_CONFIG, and for the variables of a JobSet (JOBSET_NAME), of an Indexed Job "
   "(JOB_COMPLETION_INDEX) and of a step of Slurm (SLURM_PROCID)"),
  (["--cluster_resolver=slurm"], "--cluster_resolver=slurm: SLURM_STEP_NUM_TASKS is missing in the "
   "environment: start every task with srun, which sets it"),
  (["--cluster_resolver=slrum"], "flag --cluster_resolver=slrum: value should be one of <auto|"
   "flags|tf_config|slurm|jobset|indexed_job|volcano> (see tf1ps-task --help)"),
  (["--port=0"], "flag --port=0: must be above 0 (see tf1ps-task --help)"),
  (["--steps"], "Missing value for flag --steps (see tf1ps-task --help)")])
def test_a_task_that_nothing_names(start, argv, text):
  assert commands.run(start, "tf1ps-task", commands.LINE, *argv, TF_CONFIG=None) == (
    1, ["tf1ps-task: " + text])


def test_it_is_then_the_program_of_its_job(start):
  """A line says which environment was found; the flags of other jobs are left out."""
  environ = slurm(0, nodes="127.0.0.1", per_node="2", tasks=2)
  port = harness.addresses(1)[0].split(":")[1]
  code, lines = commands.run(
    start, "tf1ps-task", commands.LINE, "--steps=5", "--port=" + port, "--start_timeout=0.2",
    "--log_format=json", TF_CONFIG=None, **environ)
  assert code == 1
  lines = [json.loads(line) for line in lines]
  assert lines[0]["message"].startswith("--cluster_resolver=auto found slurm, by SLURM_STEP_NUM_TA")
  assert lines[1]["message"].endswith("this task: /job:ps/task:0 (chief is /job:worker/task:0), "
                                      "from Slurm")
  assert lines[-1]["task"] == "ps 0" and "no worker came within 0.2 s" in lines[-1]["message"]
  code, lines = commands.run(start, "tf1ps-task", commands.LINE, "--star_timeout=5",
                             TF_CONFIG=None, **environ)
  assert code == 1 and lines[-1] == ("tf1ps-ps: --star_timeout is not a flag; did you mean "
                                     "--start_timeout? (see tf1ps-ps --help)")


# Other programs.


def test_a_program_of_another_job_under_slurm(start):
  code, lines = commands.run(
    start, "tf1ps-worker", commands.LINE, "--steps=5", TF_CONFIG=None, **slurm(0))
  assert (code, lines) == (1, [
    'tf1ps-worker: Slurm task.type is "ps", which tf1ps-worker does not run: start tf1ps-ps, or '
    "tf1ps-task for every task"])


def test_status_and_reset_find_the_cluster_in_the_environment(start, tmp_path):
  environ = jobset("ps", NUM_PS="1", TF_CONFIG=None)
  code, lines = commands.run(start, "tf1ps-status", "--start_timeout=0.5", **environ)
  assert code == 1 and "digits-ps-0-0.digits:2222" in lines[-1], lines
  # Without the jobs of other tests, which may run beside this test.
  status = start("status", commands.run_with_temporary, str(tmp_path), "tf1ps-status", [],
                 TF_CONFIG=None, **slurm(0))
  assert (status.wait(), harness.without_logs(status.lines)) == (1, [
    "tf1ps-status: tf1ps-local runs no job of yours on this machine. For a job elsewhere give "
    "--ps_hosts=HOST:PORT, the address of any of its ps, or its checkpoint directory"])
  code, lines = commands.run(start, "tf1ps-reset", "c", **dict(environ, JOBSET_NAME=""))
  assert (code, lines) == (1, ["tf1ps-reset: --cluster_resolver=jobset: JOBSET_NAME is missing in "
                               "the environment: set it in the manifest of the JobSet"])


# Names.


@pytest.mark.any_tensorflow
def test_a_name_that_is_not_known_yet_is_waited_for(monkeypatch, caplog):
  answers = [socket.gaierror(socket.EAI_NONAME, "Name or service not known")] * 3
  asked = []

  def look_up(host, *unused, **unused_too):
    asked.append(host)
    if host == "digits-ps-0-0.digits" and answers:
      raise answers.pop()
    return []

  monkeypatch.setattr(network.socket, "getaddrinfo", look_up)
  wait_for_names([Task("ps", 0, "digits-ps-0-0.digits:2222"), Task("ps", 1, "b:1")], 60.0)
  assert asked == ["digits-ps-0-0.digits"] * 4 + ["b"]
  line, = [record.getMessage() for record in caplog.records]
  assert line == ("waiting (0 of 60 s) for the name digits-ps-0-0.digits: /job:ps/task:0 at "
                  "digits-ps-0-0.digits:2222: no such host (Name or service not known)")


@pytest.mark.any_tensorflow
def test_a_name_that_stays_unknown(caplog):
  with pytest.raises(UnknownHostError) as error:
    wait_for_names([Task("ps", 0, "127.0.0.1:2222"), Task("ps", 1, "a..b:1")], 0.1)
  assert re.match(r"the name a\.\.b is not known after 0 s: /job:ps/task:1 at a\.\.b:1: no such "
                  r"host \(.+\)\. Check the name, or give a longer --start_timeout$",
                  str(error.value))
  assert len(caplog.records) == 1


# A job.


def neighbours(count):
  """The first of so many free ports in a row, as Slurm's tasks of one node take them."""
  for _ in range(50):
    ports = [int(address.rpartition(":")[2]) for address in harness.addresses(count)]
    if ports == list(range(ports[0], ports[0] + count)):
      return ports[0]
  raise AssertionError("there are no %d free ports in a row" % count)


@pytest.mark.slow
def test_the_job_of_the_page_learns_the_digits(start, tmp_path):
  """One command line for all: a ps, two workers and an evaluator; all on one node, ports apart."""
  words, = [words for words in docs_test.of_program("docs/deploying.md", "srun")
            if "tf1ps-task" in words]
  argv = words[words.index("tf1ps-task") + 1:] + [
    "--port=%d" % neighbours(4), "--checkpoint_dir=%s" % (tmp_path / "c")]
  tasks = [start("rank %d" % rank, program_tasks.run_program, "tf1ps-task", argv, commands.ROOT,
                 TF_CONFIG=None,
                 **slurm(rank, nodes="127.0.0.[1]", per_node="4", tasks=4, place=(0, rank)))
           for rank in range(4)]
  for each in tasks:
    assert each.wait(150) == 0, each.output
  names = ["ps 0: ", "worker 0 (chief): ", "worker 1: ", "evaluator: "]
  assert all(each.last_line.startswith(name) for each, name in zip(tasks, names))
  accuracy = [float(re.search(r"test accuracy (\d\.\d+)", text).group(1))
              for text in (harness.without_logs(tasks[1].lines)[-2], tasks[3].last_line)]
  assert min(accuracy) > 0.9
