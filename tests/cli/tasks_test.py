from __future__ import annotations

import json
import re

import pytest

from tests import harness
from tests.cli import commands
from tf1ps.cluster import network

LINE = commands.LINE
STALENESS = r", staleness [\d.]+ \(\d+ at most\)(?:, sent [^()]* up(?: \([^()]*\))?)?"


def tf_config(cluster, job, index):
  return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


@pytest.mark.parametrize("name, program", [
    ("tf1ps-ps", []), ("tf1ps-worker", [LINE, "--steps=1"])])
@pytest.mark.parametrize("argv, text", [
    ([], "no cluster is described: give --ps_hosts, --worker_hosts, --job_name and --task_index, "
     "or set TF_CONFIG"),
    (["--ps_hosts=a:1,b:2", "--worker_hosts=c:3,d:4"],
     "--task_index is missing: give this task's index in its job, from 0"),
    (["--ps_hosts=a:1", "--worker_hosts=c:3", "--task_index=1"],
     "--task_index: 1 is out of range: the only {job} is 0"),
    (["--ps_hosts=a:1", "--worker_hosts=c:3,a:1", "--task_index=0"],
     "--worker_hosts: a:1 of /job:worker/task:1 is already the address of /job:ps/task:0"),
    (["--ps_hosts=a", "--worker_hosts=c:3"], "--ps_hosts: \"a\" has no port"),
    (["--ps_hosts=a:1", "--worker_hosts=c:3", "--job_name=wroker"],
     "--job_name: \"wroker\" is not a job: did you mean \"worker\"?"),
    (["--ps_hosts=a:1", "--worker_hosts=c:3", "--container=my_problem_1"],
     "container 'my_problem_1' has '_' at position 2: a container begins with a letter, a digit or "
     "a dot, and goes on with these, '-' and '/'; 'my-problem-1' would do")])
def test_a_cluster_that_cannot_be_is_refused(start, name, program, argv, text):
  code, lines = commands.run(start, name, *program, *argv, TF_CONFIG=None)
  assert (code, len(lines)) == (1, 1), lines
  assert lines[0].startswith("%s: %s" % (name, text.format(job=name[6:])))


def test_all_reduce_has_no_ps(start):
  assert commands.run(
    start, "tf1ps-worker", LINE, "--steps=1", "--replication=all_reduce", "--ps_hosts=a:1",
    "--worker_hosts=b:2", "--task_index=0") == (1, [
      "tf1ps-worker: --replication=all_reduce has no ps, but the cluster has 1: leave out the job "
      "ps"])


@pytest.mark.parametrize("name, job, program", [
    ("tf1ps-ps", "worker", "tf1ps-worker"), ("tf1ps-ps", "evaluator", "tf1ps-evaluator"),
    ("tf1ps-worker", "ps", "tf1ps-ps"), ("tf1ps-evaluator", "worker", "tf1ps-worker")])
def test_a_task_of_another_program_names_the_right_one(start, name, job, program):
  cluster = {"ps": ["a:1"], "worker": ["b:2"]}
  argv = [] if name == "tf1ps-ps" else [LINE, "--checkpoint_dir=x"]
  text = 'is "%s", which %s does not run: start %s' % (job, name, program)
  hosts = ["--%s_hosts=%s" % (each, ",".join(there)) for each, there in cluster.items()]
  assert commands.run(start, name, "--steps=1" if name == "tf1ps-worker" else "--verbosity=warning",
                      "--job_name=" + job, *argv, *hosts) == (
    1, ["%s: --job_name %s" % (name, text)])
  assert commands.run(start, name, *argv, TF_CONFIG=tf_config(cluster, job, 0)) == (
    1, ["%s: TF_CONFIG task.type %s" % (name, text)])


@pytest.mark.parametrize("name, argv, text", [
    ("tf1ps-ps", ["--ps_hosts=a:9"], '--ps_hosts is "a:9", but TF_CONFIG cluster.ps is "a:1"'),
    ("tf1ps-worker", [LINE, "--steps=1", "--task_index=1"],
     '--task_index is "1", but TF_CONFIG task.index is "0"'),
    ("tf1ps-worker", [LINE, "--steps=1", "--job_name=chief"],
     '--job_name is "chief", but TF_CONFIG task.type is "worker"'),
    ("tf1ps-evaluator", [LINE, "--checkpoint_dir=x", "--worker_hosts=b:2,c:3"],
     '--worker_hosts is "b:2,c:3", but TF_CONFIG cluster.worker is "b:2"')])
def test_flags_that_contradict_tf_config(start, name, argv, text):
  config = tf_config({"ps": ["a:1"], "worker": ["b:2"]}, name[6:], 0)
  assert commands.run(start, name, *argv, TF_CONFIG=config) == (
    1, ["%s: %s: make them the same, or leave one out" % (name, text)])


@pytest.mark.parametrize("argv, config, said", [
  (["--ps_hosts=a:1,b:1", "--worker_hosts=c:3"], None, "flags has 2 ps"),
  ([], tf_config({"ps": ["a:1"], "worker": ["b:2"]}, "worker", 0), "TF_CONFIG has 1 ps")])
def test_a_number_of_ps_that_contradicts_the_cluster(start, argv, config, said):
  assert commands.run(
    start, "tf1ps-worker", LINE, "--steps=1", "--num_ps=3", *argv, TF_CONFIG=config) == (1, [
      "tf1ps-worker: --num_ps is 3, but the cluster from %s: make them the same, or leave one out" %
      said])


def test_a_tf_config_that_is_no_json(start):
  code, lines = commands.run(start, "tf1ps-ps", TF_CONFIG="{ps: a:1}")
  assert code == 1 and lines[0].startswith("tf1ps-ps: TF_CONFIG is not JSON"), lines


def warnings(lines):
  return [line for line in lines if "anyone who can connect can run anything" in line]


def test_a_job_whose_chief_is_worker_0(start):
  """By TF_CONFIG alone: a ps and two workers; last lines and exit codes."""
  ps_host, *worker_hosts = harness.addresses(3)
  cluster = {"ps": [ps_host], "worker": worker_hosts}

  def begin(name, job, index, *argv):
    return start(name, commands.program_tasks.run_program, name, argv, "/",
                 TF_CONFIG=tf_config(cluster, job, index))

  ps = begin("tf1ps-ps", "ps", 0)
  workers = [begin("tf1ps-worker", "worker", index, LINE, "--examples=320", "--batch_size=16")
             for index in range(2)]
  for task in [ps] + workers:
    assert task.wait() == 0, task.output
  assert ps.lines[:3] == [
    "ps: " + ps_host, "worker: " + ", ".join(worker_hosts),
    "this task: /job:ps/task:0 (chief is /job:worker/task:0), from TF_CONFIG"]
  assert workers[0].lines[2] == "this task: /job:worker/task:0 (the chief), from TF_CONFIG"
  assert "ps 0: serving at " + ps_host in ps.lines
  for task in [ps] + workers:  # by hand, everybody who can be reached says so, once
    assert len(warnings(task.lines)) == (network.outside_address() is not None)
  assert re.match(r"ps 0: the chief released this task: the job has ended, \d+\.\d s, exit code 0$",
                  ps.last_line)
  for task, who in zip(workers, ("worker 0 (chief)", "worker 1")):
    assert re.match(re.escape(who) + r": 10 steps, 160 examples" + STALENESS +
                    r", \d+\.\d s, trained on its part of --examples=320, exit code 0$",
                    task.last_line)
  assert re.match(r"global step 20 in \d+\.\d s; examples by worker: worker 0: 160, worker 1: 160$",
                  workers[0].lines[-3])
  assert re.match(r"test error \d\.\d{4}, test loss \d+\.\d{4} at step 20 \(400 examples, "
                  r"\d+\.\d s\)$", harness.without_logs(workers[0].lines)[-2])
  assert "global step" not in workers[1].output


def test_a_job_with_a_chief_and_an_evaluator(start, tmp_path):
  """The other dialect, where a flag agrees; and the evaluator outside of the cluster."""
  ps_host, chief_host, worker_host = harness.addresses(3)
  cluster = {"ps": [ps_host], "chief": [chief_host], "worker": [worker_host]}

  def begin(name, job, *argv):
    return start(name, commands.program_tasks.run_program, name, argv, tmp_path,
                 TF_CONFIG=tf_config(cluster, job, 0))

  # The chief's third step ends when the worker has made steps as well.
  trained = [LINE, "--steps=40", "--step_seconds=0.02", "--checkpoint_dir=c", "--job_name"]
  held = ["--block_at=3", "--block_until=%s" % (tmp_path / "go on")]
  evaluator = begin("tf1ps-evaluator", "evaluator", LINE, "--checkpoint_dir=c")
  evaluator.wait_for("this task: /job:evaluator/task:0")  # it sees the run begin
  tasks = [begin("tf1ps-ps", "ps", "--ps_hosts=" + ps_host),
           begin("tf1ps-worker", "chief", *trained, "chief", *held),
           begin("tf1ps-worker", "worker", *trained, "worker", *held)]
  for task in tasks[1:]:
    task.wait_for("holds step 3")
  # Else it may see the first checkpoint beside the last. A worker's step may be in the first, too.
  evaluator.wait_for("test error ")
  (tmp_path / "go on").write_text("")
  for task in tasks + [evaluator]:
    assert task.wait() == 0, task.output
  _, chief, worker = tasks
  assert chief.lines[3] == "this task: /job:chief/task:0 (the chief), from flags and TF_CONFIG"
  assert evaluator.lines[3] == (
    "this task: /job:evaluator/task:0 (chief is /job:chief/task:0), from TF_CONFIG")
  for task, who in (chief, "chief 0 (chief)"), (worker, "worker 0"):
    match = re.match(re.escape(who) + r": (\d+) steps, (\d+) examples" + STALENESS +
                     r", \d+\.\d s, reached --steps=40, exit code 0$", task.last_line)
    steps, examples = map(int, match.groups())
    assert 0 < steps < 42 and examples == 32 * steps
  step = int(re.match(r"global step (4[01]) in \d+\.\d s; examples by worker: chief 0: \d+, "
                      r"worker 0: \d+$", chief.lines[-3]).group(1))
  last = re.match(r"evaluator: 2 evaluations, (test error .*) at step (\d+) .*, the run has "
                  r"ended at step (\d+), exit code 0$", evaluator.last_line)
  assert last is not None, evaluator.output
  assert last.groups()[1:] == (str(step), str(step))
  assert last.group(1) in harness.without_logs(chief.lines)[-2]
  assert not warnings(evaluator.lines)  # it has no server


def test_the_config_of_server_and_sessions(start):
  lines = commands.call(start, commands.show_config, [
    "--threads=3:2", "--gpu_memory=0.25"])
  assert json.loads(lines[-1]) == [3, 2, 0.25, False, True]
  lines = commands.call(start, commands.show_config, ["--threads=4"])
  assert json.loads(lines[-1])[:2] == [4, 4]
  for memory, growth in ("grow", True), ("all", False), ("none", None), ("auto", None):
    lines = commands.call(start, commands.show_config, ["--gpu_memory=" + memory])
    assert json.loads(lines[-1]) == [0, 0, 0.0, growth, True]
  assert json.loads(commands.call(start, commands.show_config, [])[-1]) == [0, 0, 0.0, None, True]
