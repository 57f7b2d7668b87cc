from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile

import pytest

from tests import harness
from tests.cli import commands
from tf1ps.cli import from_python, local

LINE = commands.LINE
ADDRESSES = {"ps": ["127.0.0.1:5"], "worker": ["127.0.0.1:6", "127.0.0.1:7"]}
HOSTS = ["--ps_hosts=127.0.0.1:5", "--worker_hosts=127.0.0.1:6,127.0.0.1:7"]


def refused(start, *argv, **env):
  code, lines = commands.run(start, "tf1ps-local", LINE, *argv, **env)
  assert (code, len(lines)) == (1, 1), lines
  return lines[0]


@pytest.mark.parametrize("argv, text", [
    (["--steps=1", "--num_ps=0"], "--num_ps=0: between-graph replication needs at least one ps"),
    (["--steps=1", "--num_ps=-2"], "--num_ps=-2: between-graph replication needs at least one ps"),
    (["--steps=1", "--replication=in_graph", "--num_ps=0"],
     "--num_ps=0: in-graph replication needs at least one ps"),
    (["--steps=1", "--replication=all_reduce", "--num_ps=1"],
     "--num_ps=1: --replication=all_reduce has no ps"),
    (["--steps=1", "--replication=all_reduce", "--on_uneven=pad"],
     "--on_uneven=pad needs --replication=between_graph, the default, and --sync_replicas"),
    (["--steps=1", "--num_workers=0"], "--num_workers=0: a job needs at least one worker"),
    (["--steps=1", "--evaluator"],
     "--evaluator needs --checkpoint_dir: it follows the checkpoints there"),
    (["--num_workers=1"],
     "the job has no end: give --steps, --epochs or --examples"),
    (["--steps=1", "--container=my_problem_1"],
     "container 'my_problem_1' has '_' at position 2: a container begins with a letter, a digit or "
     "a dot, and goes on with these, '-' and '/'; 'my-problem-1' would do"),
    (["--steps=1", "--persistent"], "--persistent is not a flag (see tf1ps-local --help)")])
def test_what_cannot_work_is_refused_before_anything_starts(start, argv, text):
  assert refused(start, *argv) == "tf1ps-local: " + text


def test_a_log_directory_that_cannot_be_made(start, tmp_path):
  (tmp_path / "file").write_text("")
  code, lines = commands.run(start, "tf1ps-local", LINE, "--steps=1",
                             "--log_dir=%s/file/logs" % tmp_path)
  assert code == 1
  assert lines[-1].startswith("tf1ps-local: [Errno 20] Not a directory: ")
  assert not [line for line in lines if "started" in line or "Traceback" in line]


def made(start, *argv, gpus=("-1", "-1"), note=None):
  """The tasks that the launcher makes: {name: (module, the arguments without its place, env)}."""
  lines = commands.call(
    start, commands.show_tasks, [LINE, "--steps=4", *argv], ADDRESSES, gpus, note)
  tasks = {}
  for name, module, args, env in map(json.loads, lines):
    job, index = name.split()
    assert module == "tf1ps.cli." + job
    place = HOSTS + ["--job_name=" + job, "--task_index=" + index] if job != "evaluator" else []
    assert args[len(args) - len(place):] == place
    tasks[name] = (args[:len(args) - len(place)], env)
  return tasks


def test_each_task_has_a_port_of_its_own_for_its_metrics(start):
  pytest.importorskip("prometheus_client")
  lines = commands.call(start, commands.show_tasks, [
    LINE, "--steps=4", "--num_workers=2", "--evaluator", "--checkpoint_dir=c",
    "--metrics_port=0.0.0.0:9100"], ADDRESSES, ["-1", "-1"])
  ports = {name: args[-1] for name, _, args, _ in map(json.loads, lines)}
  assert ports == {name: "--metrics_port=0.0.0.0:%d" % (9100 + i) for i, name in enumerate(
    ["ps 0", "worker 0", "worker 1", "evaluator 0"])}
  assert commands.run(start, "tf1ps-local", LINE, "--steps=4", "--metrics_port=65534") == (1, [
    "tf1ps-local: --metrics_port=127.0.0.1:65534: the job has 3 tasks, and the ports end at 65535"])


def test_each_task_gets_the_flags_that_it_has(start):
  tasks = made(start, "--heartbeat_timeout=3", "--num_workers=2", "--batch_size", "8",
               "--container", "c",
               "--log_dir=/tmp/x y", "--checkpoint_dir=with blanks, and = signs", "--num_ps", "1",
               "--evaluator", "--verbosity=error", "--start_timeout=9", "--save_summary_steps=8")
  directory = "--checkpoint_dir=with blanks, and = signs"
  common = ["--heartbeat_timeout=3", "--verbosity=error", "--start_timeout=9"]
  assert sorted(tasks) == ["evaluator 0", "ps 0", "worker 0", "worker 1"]
  assert sorted(tasks["ps 0"][0]) == sorted(common + ["--container", "c"])
  for worker in "worker 0", "worker 1":
    assert sorted(tasks[worker][0]) == sorted(common + [
      LINE, "--steps=4", "--batch_size", "8", "--container", "c", directory,
      "--save_summary_steps=8"])
  assert sorted(tasks["evaluator 0"][0]) == sorted(common + [
    LINE, "--batch_size", "8", "--container", "c", directory])


@pytest.mark.parametrize("given", [
    ["--gpu_memory=grow"], ["--threads", "2"], ["-heartbeat_timeout", "4"]])
def test_the_ways_to_write_a_flag(start, given):
  tasks = made(start, "--evaluator", *given, "--noevaluator")
  assert sorted(tasks) == ["ps 0", "worker 0", "worker 1"]
  assert tasks["ps 0"][0] == given
  assert tasks["worker 1"][0] == [LINE, "--steps=4"] + given


@pytest.mark.parametrize("given", [
    ["--extra_variable"], ["--noextra_variable"], ["--slow_index=1"], ["--slow_index", "-1"],
    ["--fail_in=a b", "--step_seconds", "0.5"], ["--alsologtostderr"]])
def test_flags_of_the_program_go_to_workers_and_evaluator(start, given):
  tasks = made(start, *given, "--evaluator", "--num_workers=2", "--checkpoint_dir=d")
  assert tasks["ps 0"][0] == []
  assert tasks["worker 0"][0] == [LINE, "--steps=4"] + given + ["--checkpoint_dir=d"]
  assert tasks["evaluator 0"][0] == [LINE] + given + ["--checkpoint_dir=d"]


def test_gpus_are_for_workers_and_tf_config_for_nobody(start):
  tasks = made(start, "--evaluator", gpus=("0,1", "2,3"))
  assert {name: env for name, (_, env) in tasks.items()} == {
    "ps 0": {"TF_CONFIG": None, "CUDA_VISIBLE_DEVICES": "-1", "TF1PS_TITLE": "tf1ps ps 0 line"},
    "worker 0": {"TF_CONFIG": None, "CUDA_VISIBLE_DEVICES": "0,1",
                 "TF1PS_TITLE": "tf1ps worker 0 line"},
    "worker 1": {"TF_CONFIG": None, "CUDA_VISIBLE_DEVICES": "2,3",
                 "TF1PS_TITLE": "tf1ps worker 1 line"},
    "evaluator 0": {"TF_CONFIG": None, "CUDA_VISIBLE_DEVICES": "-1",
                    "TF1PS_TITLE": "tf1ps evaluator 0 line"}}


@pytest.mark.parametrize("given, gpus, note, memory", [
  ([], ("0", "1"), None, ["--gpu_memory=all"]),
  ([], ("0", "0"), "1 GPU for 2 workers: they share it", ["--gpu_memory=grow"]),
  (["--gpu_memory=0.4"], ("0", "0"), "1 GPU for 2 workers: they share it", ["--gpu_memory=0.4"]),
  (["--gpu_memory=all"], ("0", "0"), "1 GPU for 2 workers: they share it", ["--gpu_memory=all"]),
  ([], ("-1", "-1"), None, [])])
def test_the_memory_of_gpus_that_workers_share(start, given, gpus, note, memory):
  tasks = made(start, *given, gpus=gpus, note=note)
  assert tasks["worker 0"][0] == tasks["worker 1"][0] == [LINE, "--steps=4"] + memory
  assert tasks["ps 0"][0] == given


def test_the_launcher_says_that_workers_share_a_gpu(start):
  """The launch then ends at a flag that no task takes."""
  shared = "tf1ps-local: 1 GPU for 2 workers: they share it"
  for given, line in (([], shared + ", and each takes memory as it needs it"),
                      (["--gpu_memory=0.4"], shared)):
    code, lines = commands.run(start, "tf1ps-local", LINE, "--steps=1", "--num_workers=2",
                               "--log_dir=%s" % os.devnull, *given, CUDA_VISIBLE_DEVICES="0")
    assert code == 1 and line in lines, lines


@pytest.mark.slow
def test_a_real_job_divides_the_gpus(tmp_path):
  """What its tasks see, from a file of flags, where TF_CONFIG speaks of another job."""
  program = commands.write(tmp_path, "sees.py", (
    "import os\n"
    "from absl import flags\n"
    "from tests.training.line_program import input_fn as line_input, model_fn\n"
    "flags.DEFINE_string('greeting', '', 'What to say.')\n"
    "def input_fn(mode, shard):\n"
    "  if mode == 'train':\n"
    "    print('sees %s, says %s' % (os.environ['CUDA_VISIBLE_DEVICES'], flags.FLAGS.greeting))\n"
    "  return line_input(mode, shard)\n"))
  (tmp_path / "job.flags").write_text("\n".join([
    program, "--num_workers=3", "--steps=3", "--greeting=good day, you", "--log_dir=logs"]))
  done = subprocess.run(
    [sys.executable, str(commands.ROOT / "bin" / "tf1ps_local.py"), "--flagfile=job.flags"],
    cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    timeout=harness.LIMIT, env=dict(os.environ, CUDA_VISIBLE_DEVICES="0,1,2,3",
                                    TF_CONFIG='{"task": {"type": "none"}}'))
  assert done.returncode == 0, done.stdout
  seen = re.findall(r"^\[worker (\d)\] sees (\S+), says (.*)$", done.stdout, re.MULTILINE)
  assert sorted(seen) == [("0", "0,1", "good day, you"), ("1", "2", "good day, you"),
                          ("2", "3", "good day, you")]
  assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
    "ps-0.log", "worker-0.log", "worker-1.log", "worker-2.log"]
  warned = [line for line in done.stdout.splitlines() if "anyone who can connect" in line]
  assert all(line.startswith("tf1ps-local: ") for line in warned) and len(warned) <= 1


def test_without_a_temporary_directory_there_are_no_logs(monkeypatch, capsys):
  monkeypatch.setattr(tempfile, "tempdir", "/no/such/directory")
  assert local._new_log_dir() is None
  assert "so the job has no log files. Give --log_dir" in capsys.readouterr().out


def test_all_output_of_a_job_that_fails_is_json_and_the_cause_comes_last(start, tmp_path):
  program = commands.write(tmp_path, "broken.py", """
import os
def input_fn(mode, shard):
  os.write(2, b"E0000 00:00:17 4006 env.cc:153] written by C++\\n")
  raise KeyError("no such file")
def model_fn(features, labels, mode): pass
""")
  code, lines = commands.run(
    start, "tf1ps-local", program, "--steps=9", "--num_workers=1", "--log_format=json",
    "--log_dir=%s" % (tmp_path / "logs"))
  records = [json.loads(line) for line in lines]
  assert code == 1
  assert all({"time", "severity", "task", "message"} <= set(record) for record in records)
  assert {record["task"] for record in records} == {"tf1ps-local", "ps 0", "worker 0"}
  assert ("worker 0", "ERROR", "E0000 00:00:17 4006 env.cc:153] written by C++") in [
    (record["task"], record["severity"], record["message"]) for record in records]
  traceback, = [record for record in records if record["message"].startswith("Traceback")
                and record["task"] == "worker 0"]
  assert "broken.py" in traceback["message"] and traceback["severity"] == "ERROR"
  last = records[-1]
  assert last["severity"] == "ERROR" and "KeyError: 'no such file'" in last["message"]
  assert last["message"].startswith("tf1ps-local: failed: worker 0 ended with exit code 1 (")


def test_a_wrong_flag_is_json_as_well(start):
  record = json.loads(refused(start, "--steps=1", "--log_format", "json", "--overlab"))
  assert (record["severity"], record["task"]) == ("ERROR", "tf1ps-local")
  assert record["message"].startswith("tf1ps-local: --overlab is not a flag; did you mean")


def test_a_dry_run_says_what_the_program_and_the_flags_are(start, tmp_path):
  code, lines = commands.run(
    start, "tf1ps-local", "--dry_run", commands.LINE, "--steps=5", "--sync_replicas", "--num_ps=2",
    "--num_workers=3", "--checkpoint_dir=c", folder=tmp_path)
  assert code == 0, lines
  assert lines[:4] == ["input: features: float32 [32]", "input: labels: float32 [32]",
                       "variables: 2, 2 values, 8 bytes", "  w float32 []"]
  assert lines[-6:-1] == [
    "replication: between_graph: 3 workers on the variables of 2 ps",
    "updates: an update is the mean of the gradients of 3 workers, 96 examples",
    "optimizer: adam, learning rate 0.001", "end: --steps=5", "checkpoints: c, secs:600"]
  assert lines[-1].startswith("dry run: ok, ") and list(tmp_path.iterdir()) == []


def test_a_dry_run_needs_no_end(start, tmp_path):
  code, lines = commands.run(start, "tf1ps-local", "--dry_run", commands.LINE, folder=tmp_path)
  assert code == 0 and "end: none yet: give --steps, --epochs or --examples" in lines, lines


@pytest.mark.parametrize("fails_in, place", [
  ("model", "in model_fn"), ("input", "in input_fn"), ("eval", "in input_fn")])
def test_a_dry_run_fails_as_a_worker_does(start, fails_in, place):
  code, lines = commands.run(
    start, "tf1ps-local", "--dry_run", commands.LINE, "--steps=5", "--fail_in=" + fails_in)
  assert code == 1 and lines[0].startswith("Traceback")
  assert lines[-1].startswith("dry run: line.py:") and place in lines[-1]


def test_a_call_from_python_has_no_dry_run():
  with pytest.raises(ValueError, match="dry_run prints its report, and has no result"):
    from_python.run_local(commands.LINE.partition("=")[2], steps=5, dry_run=True)
