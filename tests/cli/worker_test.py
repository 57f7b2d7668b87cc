from __future__ import annotations

import re
import signal
import socket

import pytest

from tests import harness, needs
from tests.cli import commands
from tf1ps.cli import worker
from tf1ps.training import options

LINE = commands.LINE
# A model that fails in a module of its own; its input is fine.
FAILING = """
import tensorflow.compat.v1 as tf
from failing_model import model_fn

def input_fn(mode, shard):
  numbers = shard.dataset(tf.data.Dataset.range(8)).batch(shard.batch_size)
  return tf.data.make_one_shot_iterator(numbers).get_next(), None
"""
FAILURES = {
  "ValueError": ('raise ValueError("no model today")', "ValueError: no model today"),
  "RuntimeError": ('raise RuntimeError("no model today")', "RuntimeError: no model today"),
  "KeyError": ('{}["w"]', "KeyError: 'w'"),
  "of TensorFlow": ("tf.ones([2, 3]) + tf.ones([2, 4])", None),
  "of tf1ps": ('tf1ps.ModelSpec(loss=1.0, accuracy=2.0)', None),
  "sys.exit": ('sys.exit("nothing to do")', "the program called sys.exit('nothing to do')"),
  "sys.exit(0)": ("sys.exit(0)", "the program called sys.exit(0)"),
}


def hosts():
  return ["--ps_hosts=%s" % harness.addresses(1)[0], "--worker_hosts=%s" % harness.addresses(1)[0]]


@pytest.mark.parametrize("kind", FAILURES)
def test_an_error_in_the_users_model_shows_its_file_and_line(start, tmp_path, kind):
  statement, said = FAILURES[kind]
  (tmp_path / "failing_model.py").write_text(
    "import sys\nimport tensorflow.compat.v1 as tf\nfrom tf1ps import training\n\n"
    "def model_fn(features, labels, mode):\n  %s\n" % statement)
  program = commands.write(tmp_path, "failing.py", FAILING)
  code, lines = commands.run(start, "tf1ps-worker", program, "--steps=3", *hosts())
  assert code == 1
  text = "\n".join(lines)
  assert text.count("Traceback (most recent call last):\n") >= 1
  assert '  File "%s", line 6, in model_fn\n    %s\n' % (
    tmp_path / "failing_model.py", statement) in text
  assert re.match("worker 0 \\(chief\\): .*, exit code 1$", lines[-1])
  assert lines[-1].startswith("worker 0 (chief): failing_model.py:6 in model_fn: ")
  assert said is None or lines[-1].endswith(": %s, exit code 1" % said)


def test_ctrl_c_while_the_graph_is_built(start, tmp_path):
  (tmp_path / "failing_model.py").write_text(
    "import threading\n\ndef model_fn(features, labels, mode):\n  print('building')\n"
    "  threading.Event().wait(60)\n")
  program = commands.write(tmp_path, "failing.py", FAILING)
  task = start("worker", worker.run, [program, "--steps=3"] + hosts())
  task.wait_for("building")
  task.signal(signal.SIGINT)
  assert task.wait() == 130
  assert task.last_line == "worker 0 (chief): ended by signal 2, exit code 130"
  assert "Traceback" not in task.output


@pytest.mark.parametrize("at", ["import", "model_fn"])
def test_sigterm_ends_process_1_while_it_builds(start, tmp_path, at):
  """The system drops a signal that process 1 of a container does not handle."""
  wait = "print('building')\nthreading.Event().wait(60)\n"
  (tmp_path / "failing_model.py").write_text(
    "import threading\n\n" + (wait if at == "import" else "")
    + "def model_fn(features, labels, mode):\n  " + wait.replace("\n", "\n  "))
  program = commands.write(tmp_path, "failing.py", FAILING)
  task = start("worker", commands.be_first_process, [program, "--steps=3"] + hosts())
  if "no namespace" in task.wait_for("n"):
    needs.skip("namespaces")
  task.wait_for("building")
  pid = int(task.wait_for("process ").split()[1])
  harness.signal_process(pid, signal.SIGTERM)
  try:
    assert task.wait() == 143
  except AssertionError:
    harness.signal_process(pid, signal.SIGKILL)
    raise
  assert "ended by signal 15" in task.last_line


@pytest.mark.slow
def test_an_error_of_ours_is_a_line(start):
  """The ps refuses connections, and no traceback says more than that."""
  code, lines = commands.run(
    start, "tf1ps-worker", LINE, "--steps=3", "--start_timeout=3", *hosts())  # several looks
  assert code == 1
  assert "Traceback" not in "\n".join(lines)
  assert re.match(r"worker 0 \(chief\): \w+Error: .*/job:ps/task:0 at 127.* refused.*, "
                  r"exit code 1$", lines[-1])


def test_bad_flags_are_refused_before_a_port_is_opened(start):
  code, lines = commands.run(
    start, "tf1ps-worker", LINE, *hosts(), "--task_index=0", "--steps=5", "--trace_steps=1:2",
    "--metrics_port=%s" % harness.addresses(1)[0])
  assert (code, lines) == (1, [
    "tf1ps-worker: --trace_steps=1:2 needs --checkpoint_dir, the directory of the traces"])


def test_it_needs_to_know_when_the_job_ends(start):
  code, lines = commands.run(start, "tf1ps-worker", LINE, *hosts())
  assert (code, lines) == (1, [
    "tf1ps-worker: the job has no end: give --steps, --epochs or --examples"])


@pytest.mark.parametrize("launched, code", [(False, 1), (True, 98)])
def test_a_port_that_is_taken(start, launched, code):
  with socket.socket() as taken:
    taken.bind(("", 0))
    taken.listen(1)
    address = "127.0.0.1:%d" % taken.getsockname()[1]
    argv = [LINE, "--steps=3", "--ps_hosts=127.0.0.1:1", "--worker_hosts=" + address]
    task = start("worker", worker.run, argv, launched)
    assert task.wait() == code
  assert task.last_line == (
    "worker 0 (chief): Could not start gRPC server: /job:worker/task:0 cannot listen at %s: "
    "another process has that port, exit code %d" % (address, code))


COMMON = [
  "--steps=4", "--epochs=2", "--examples=9", "--batch_size=16", "--optimizer=adamw:0.25",
  "--learning_rate=0.5,exponential:10:0.5", "--shard=files",
  "--save_checkpoints=secs:7,keep:3",
  "--save_summary_steps=6", "--start_timeout=11", "--checkpoint_dir=d",
  "--stall_after=0.5:fail",
  "--clip_norm=2.5", "--replication=between_graph", "--num_clones=2", "--on_bad_record=skip:0.25",
  "--partition_bytes=1000", "--wire_dtype=bfloat16",
  "--gradient_accumulation_steps=3",
  "--moving_average_decay=0.5", "--trace_steps=10:12"]


def as_number(text):
  return float(text) if text.replace(".", "", 1).isdigit() else text


def test_the_flags_become_options(start):
  """Every field of the options but the config and the packing is a flag."""
  synchronous = ["--sync_replicas=3", "--on_uneven=shrink"]
  stale = ["--staleness_policy=max_lead:2,drop:8,damp,warm_up:5",
           "--overlap=prefetch"]
  several = ["--steps_per_execution=4", "--ps_recovery=lost_only"]
  fields = set(options.Options._fields) - {"config", "pack_bytes"}
  names = {arg[2:].split("=")[0] for arg in COMMON + synchronous + stale + several}
  assert names == fields
  for some in (synchronous, stale, several):
    argv = COMMON + some
    expected = {arg[2:].split("=")[0]: arg.split("=")[1] for arg in argv}
    lines = commands.call(start, commands.show_options, argv)
    found = dict(line.split("=", 1) for line in lines)
    assert found["config"] == "None"
    found = {name: found[name] for name in expected}
    assert {name: as_number(value) for name, value in found.items()} == {
      name: as_number(value) for name, value in expected.items()}
