from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys

import pytest

from tests import harness
from tests.cli import commands
from tf1ps.cli import app

LINE, NOBODY, run, write = commands.LINE, commands.NOBODY, commands.run, commands.write


def refused(name, text):
  return 1, ["%s: %s (see %s --help)" % (name, text, name)]


@pytest.mark.parametrize("name, argv, text", [
    ("tf1ps-local", [LINE, "--step=3"], "--step is not a flag; did you mean --steps?"),
    ("tf1ps-local", [LINE, "--num_worker", "3"], "--num_worker is not a flag; did you mean "
     "--num_workers?"),
    ("tf1ps-ps", ["--persisten"], "--persisten is not a flag; did you mean --persistent?"),
    ("tf1ps-ps", NOBODY + ["--steps=3"], "--steps is not a flag"),
    ("tf1ps-worker", [LINE, "--step_second=1"], "--step_second is not a flag; did you mean "
     "--step_seconds?"),
    ("tf1ps-worker", ["--steps=3", "--nosync_replica"], "--nosync_replica is not a flag; did "
     "you mean --sync_replicas?"),
    ("tf1ps-evaluator", ["-chekpoint_dir=x"], "--chekpoint_dir is not a flag; did you mean "
     "--checkpoint_dir?"),
    ("tf1ps-predict", ["--outptu", "x.csv"], "--outptu is not a flag; did you mean --output?"),
    ("tf1ps-predict", ["--zzz"], "--zzz is not a flag")])
def test_an_unknown_flag_is_refused_with_the_nearest(start, name, argv, text):
  assert run(start, name, *argv) == refused(name, text)


@pytest.mark.parametrize("name, argv, text", [
    ("tf1ps-worker", [LINE, "--pack_bytes=0"], "--pack_bytes is not a flag any more: set "
     "TF1PS_PACK_BYTES in the environment of all tasks"),
    ("tf1ps-local", ["--eval_steps", "3"], "--eval_steps is not a flag any more: give "
     "--evaluator, and --save_checkpoints=steps:N for the steps between them"),
    ("tf1ps-worker", ["--noscale_learning_rate"], "--noscale_learning_rate is not a flag any "
     "more: give the --learning_rate that you want")])
def test_an_old_flag_is_refused_with_advice(start, name, argv, text):
  assert run(start, name, *argv) == refused(name, text)


@pytest.mark.parametrize("argv, text", [
    (["3", LINE], "'3' and %s both name a program: leave one out" % LINE),
    ([LINE, "3", "--steps=2"], "'3' and %s both name a program: leave one out" % LINE),
    (["a.py", "--steps", "2", "b.py"], "'a.py' and 'b.py' both name a program: leave one out"),
    ([LINE, "--steps=2", "--", "3"],
     "'3' is not a flag: each argument begins with -- (see tf1ps-worker --help)")])
def test_a_stray_argument_is_refused(start, argv, text):
  assert run(start, "tf1ps-worker", *argv) == (1, ["tf1ps-worker: " + text])


@pytest.mark.parametrize("name", commands.OF_PROGRAMS)
def test_a_program_needs_no_flag(start, tmp_path, name):
  write(tmp_path, "talking.py", commands.TALKING)
  for argv in ["talking.py", "--verbosity", "info"], ["--verbosity=info", "talking"]:
    code, lines = run(start, name, *argv, "--help", folder=tmp_path)
    assert code == 0 and "Of the program talking:" in lines


def test_a_flag_of_the_program_may_be_nearly_one_of_ours(start, tmp_path):
  (tmp_path / "more.py").write_text(
    "from absl import flags\nflags.DEFINE_integer('num_worker', 1, 'Mine.')\n")
  program = write(tmp_path, "p.py", "import more\n" + commands.TALKING)
  code, lines = run(start, "tf1ps-predict", program, "--num_worker=3",
                    *commands.NEEDED_BY["tf1ps-predict"], folder=tmp_path)
  assert lines[0] == "imported" and "--num_worker" not in lines[-1], lines


def test_a_value_that_is_missing(start):
  assert run(start, "tf1ps-local", LINE, "--steps") == refused(
    "tf1ps-local", "Missing value for flag --steps")


@pytest.mark.parametrize("name", [
  name for name in commands.OF_PROGRAMS if name not in ("tf1ps-ps", "tf1ps-task")])
def test_a_program_is_needed(start, name):
  for argv in [], ["--program="]:
    assert run(start, name, *argv) == (
      1, [name + ": the program is missing: a module's name or the path of a .py file, as in `%s "
          "digits.py`" % name])


@pytest.mark.parametrize("name", ["tf1ps-local", "tf1ps-worker", "tf1ps-predict"])
def test_a_program_that_is_not_there(start, tmp_path, name):
  write(tmp_path, "digits.py", commands.TALKING)
  more = commands.NEEDED_BY.get(name, [])
  assert run(start, name, "--program=digit.py", *more, folder=tmp_path) == (
    1, ["%s: the program %s/digit.py does not exist; did you mean %s/digits.py?" % (
      name, tmp_path, tmp_path)])
  assert run(start, name, "--program=tests.programs.lin", *more) == (
    1, ["%s: the module 'tests.programs.lin' does not exist; did you mean tests.programs.line?" % (
      name)])


def test_a_module_of_the_current_folder(start, tmp_path):
  write(tmp_path, "talking.py", commands.TALKING)
  code, lines = run(start, "tf1ps-predict", "--program=talking", "--help", folder=tmp_path)
  assert (code, lines[0]) == (0, "imported")


def test_a_program_whose_import_fails_is_told_by_file_and_line(start, tmp_path):
  (tmp_path / "helper.py").write_text("RATE = 1\n\nRATES = [RATE, RATES]\n")
  program = write(tmp_path, "broken.py", "import helper\n" + commands.TALKING)
  assert run(start, "tf1ps-worker", program, "--steps=1") == (1, [
    "tf1ps-worker: %s cannot be imported (%s/helper.py:3): NameError: name 'RATES' is not defined"
    % (tmp_path / "broken.py", tmp_path)])
  program = write(tmp_path, "ends.py", "import sys\nsys.exit(0)\n" + commands.TALKING)
  code, lines = run(start, "tf1ps-predict", program, *commands.NEEDED_BY["tf1ps-predict"])
  assert code == 1
  assert lines[-1].startswith(
    "tf1ps-predict: %s/ends.py cannot be imported (%s/ends.py:2): it ends Python while it is "
    "imported" % (tmp_path, tmp_path))


def test_a_program_without_a_model(start, tmp_path):
  text = commands.TALKING.replace("def model_fn", "def modelfn")
  assert run(start, "tf1ps-worker", write(tmp_path, "p.py", text), "--steps=1") == (1, [
    "tf1ps-worker: %s/p.py has no function model_fn(features, labels, mode); did you mean modelfn?"
    % tmp_path])
  text = commands.TALKING + "model_fn = 5\n"  # the import alone shows it
  assert run(start, "tf1ps-worker", write(tmp_path, "q.py", text), "--steps=1") == (1, [
    "imported", "tf1ps-worker: %s/q.py has no function model_fn(features, labels, mode)"
    % tmp_path])


def test_a_flag_that_takes_a_name_of_ours_is_refused_with_both_places(start, tmp_path):
  text = commands.TALKING.replace('"greeting"', '"steps"')
  code, lines = run(start, "tf1ps-worker", write(tmp_path, "clash.py", text), "--steps=1")
  assert code == 1
  assert lines[0].startswith(
    "tf1ps-worker: %s/clash.py cannot be imported (%s/clash.py:3): DuplicateFlagError: The flag "
    "'steps' is defined twice. First from tf1ps.cli.flags, " % (tmp_path, tmp_path))
  assert re.search("[Ss]econd from clash", lines[0])


@pytest.mark.parametrize("name, flag, ours", [
    ("tf1ps-worker", "num_workers", "tf1ps-local"), ("tf1ps-local", "log_dir", "tf1ps-local"),
    ("tf1ps-worker", "output", "tf1ps-predict"), ("tf1ps-predict", "verbosity", "tf1ps-local")])
def test_a_flag_that_another_program_of_ours_has_is_refused_with_both_places(
    start, tmp_path, name, flag, ours):
  text = commands.TALKING.replace('"greeting"', '"%s"' % flag)
  # The launcher imports a program only for a flag that it does not know.
  argv = [write(tmp_path, "clash.py", text), "--other=1", *commands.NEEDED_BY.get(name, [])]
  assert run(start, name, *argv) == (1, [
    "imported", "%s: the flag '%s' is defined twice: by %s and in %s/clash.py. Rename that of the "
    "program." % (name, flag, ours, tmp_path)])


@pytest.mark.parametrize("argv", [
    ["--greeting=a b, c", "--steps=7"], ["--steps=7", "--greeting", "a b, c"],
    ["--greeting", "a b, c", "--steps", "7"], ["--flagfile=flags.txt"]])
def test_flags_of_the_program_stand_beside_ours(start, tmp_path, argv):
  program = write(tmp_path, "p.py", commands.TALKING)
  (tmp_path / "flags.txt").write_text("--steps=7\n--greeting=a b, c\n")
  argv = [arg.replace("=flags.txt", "=%s/flags.txt" % tmp_path) for arg in argv]
  for command in [program] + argv, argv + [program]:
    lines = commands.call(
      start, commands.show_flags, "tf1ps-worker", command, ["greeting", "steps", "batch_size"])
    assert lines[0] == "imported"
    assert json.loads(lines[1]) == {"greeting": "a b, c", "steps": 7, "batch_size": 32}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_program_is_imported(start, tmp_path, number):
  """A handler runs, and not the default action: process 1 of a container has none."""
  program = write(tmp_path, "waits.py", (
    "from threading import *\nprint('imported')\ntry:\n  Event().wait(60)\n"
    "except SystemExit as error:\n  raise RuntimeError('as C++ does') from error\n"))
  task = start("predict", commands.program_tasks.run_program, "tf1ps-predict",
               [program, *commands.NEEDED_BY["tf1ps-predict"]], "/")
  task.wait_for("imported")
  task.signal(number)
  assert task.wait() == 128 + number
  assert task.lines == ["imported", "tf1ps-predict: ended by signal %d" % number]


def test_bad_values_are_refused_before_the_program_is_imported(start, tmp_path):
  program = write(tmp_path, "p.py", commands.TALKING)
  for name in commands.OF_PROGRAMS:
    assert run(start, name, program, "--verbosity=loud") == refused(
      name, "flag --verbosity=loud: must be one of debug, info, warning, error, fatal")


def test_the_launcher_imports_a_program_only_for_its_flags(start, tmp_path):
  program = write(tmp_path, "p.py", commands.TALKING)
  last = "tf1ps-local: --num_ps=0: between-graph replication needs at least one ps"
  assert run(start, "tf1ps-local", program, "--num_ps=0") == (1, [last])
  assert run(start, "tf1ps-local", program, "--num_ps=0", "--greeting=x") == (1, ["imported", last])
  assert run(start, "tf1ps-local", program, "--num_ps=0", "--greetin=x") == (1, [
    "imported", *refused("tf1ps-local", "--greetin is not a flag; did you mean --greeting?")[1]])


def visible_gpus(start, name, *argv):
  lines = commands.call(start, commands.show_environment, name, argv, "CUDA_VISIBLE_DEVICES",
                        CUDA_VISIBLE_DEVICES="0,1")
  return lines[-1].split("=")[1]


@pytest.mark.parametrize("argv, seen", [
    ([], "-1"), (["--gpu_memory=all"], "0,1"), (["--gpu_memory=0.5"], "0,1"),
    (["--gpu_memory", "grow"], "0,1"), (["--gpu_memory=none"], "-1"),
    (["--gpu_memory=grow", "--gpu_memory=none"], "-1")])
def test_a_ps_and_an_evaluator_see_no_gpu_by_default(start, argv, seen):
  assert visible_gpus(start, "tf1ps-ps", *argv) == seen
  assert visible_gpus(start, "tf1ps-evaluator", *argv) == seen


def test_the_others_see_the_gpus_that_there_are(start):
  for name in "tf1ps-worker", "tf1ps-predict", "tf1ps-local":
    assert visible_gpus(start, name) == "0,1"
  for name in "tf1ps-worker", "tf1ps-local":
    assert visible_gpus(start, name, "--gpu_memory=none") == "-1"


@pytest.mark.parametrize("verbosity, level", [
    (None, "2"), ("debug", "0"), ("info", "0"), ("INFO", "0"), ("warning", "2"), ("fatal", "3"),
    ("1", "0"), ("0", "0"), ("-1", "2"), ("-2", "2"), ("-3", "3")])
def test_verbosity_by_name_and_by_absls_numbers(start, verbosity, level):
  argv = [] if verbosity is None else ["--verbosity=" + verbosity]
  lines = commands.call(start, commands.show_environment, "tf1ps-ps", argv, "TF_CPP_MIN_LOG_LEVEL",
                        TF_CPP_MIN_LOG_LEVEL=None)
  assert lines[-1] == "TF_CPP_MIN_LOG_LEVEL=" + level


class Files(object):
  """The command in bin, run as a shell would, in an environment that says nothing of tests."""

  def __init__(self, folder):
    self._folder = folder
    self._env = {name: value for name, value in os.environ.items() if not name.startswith(
      ("TF_", "TF2_", "CUDA", "PYTHON"))}
    self._running = []

  def start(self, name, *argv, **env):
    file = commands.ROOT / "bin" / "tf1ps.py"
    self._running.append(subprocess.Popen(
      [sys.executable, str(file), commands.of_program(name)] + list(argv), cwd=str(self._folder),
      env=dict(self._env, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      universal_newlines=True))
    return self._running[-1]

  def close(self):
    for process in self._running:
      process.kill()
      process.communicate()


@pytest.fixture
def files(tmp_path):
  made = Files(tmp_path)
  yield made
  made.close()


@pytest.mark.parametrize("flags, error", [
  (["--metrics_port=9100", "--container=a b"], "container"),
  (["--trace_steps=5:10"], "needs --checkpoint_dir"),
  (["--num_worker=3"], "--num_worker is not a flag; did you mean --num_workers?"),
  (["--eval_steps=3"], "--eval_steps is not a flag any more"),
])
def test_a_launcher_refuses_flags_without_tensorflow(files, tmp_path, flags, error):
  """Only the process that its tasks are forked from imports it: it takes seconds, and logs."""
  (tmp_path / "tensorflow").mkdir()
  (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
  process = files.start("tf1ps-local", LINE, "--steps=5", *flags, PYTHONPATH=str(tmp_path))
  output, errors = process.communicate(timeout=harness.LIMIT)
  assert error in output + errors and "imported" not in output + errors


# What TensorFlow, oneDNN and CUDA say at the start, on 2.21 and on 1.15.
NOISE = re.compile(r"\b[IWEF]\d{4} \d\d:|\b[IWEF] tensorflow/|WARNING|oneDNN|[Dd]eprecat|[Cc]uda|"
                   r"FutureWarning|np_resource|absl::|rebuild TensorFlow", re.MULTILINE)


@pytest.mark.slow
def test_a_job_is_quiet_unless_told(files, tmp_path):
  """Real interpreters, since what a process imports before it is forked says nothing any more."""
  ps_host, worker_host, other = harness.addresses(3)
  hosts = ["--ps_hosts=" + ps_host, "--worker_hosts=" + worker_host]
  loud = files.start("tf1ps-ps", "--ps_hosts=" + other, "--worker_hosts=127.0.0.1:1",
                     "--verbosity=info", "--start_timeout=0.1")
  trained = [("tf1ps-ps", hosts),
             ("tf1ps-worker", hosts + [LINE, "--steps=5", "--checkpoint_dir=c"])]
  used = [("tf1ps-evaluator", [LINE, "--checkpoint_dir=c", "--start_timeout=0.5"]),
          ("tf1ps-predict", [LINE, "--checkpoint_dir=c", "--output=y.csv"])]
  for commands_at_once in trained, used:
    for process in [files.start(name, *argv) for name, argv in commands_at_once]:
      output, errors = process.communicate(timeout=2 * harness.LIMIT)
      assert process.returncode == 0, output + errors
      assert errors == ""
      assert output and not NOISE.search(output), output
  assert (tmp_path / "y.csv").read_text().count("\n") == 401
  output, errors = loud.communicate(timeout=2 * harness.LIMIT)
  assert loud.returncode == 1
  assert NOISE.search(errors), output + errors


def test_output_that_cannot_be_written_ends_no_program(start):
  task = start("ps", commands.print_to, "/dev/full")
  assert task.wait() == 7, task.output


@pytest.mark.parametrize("message, expected", [
  ("joined run a", r"\d\d:\d\d:\d\d joined run a"), ("100 %s", r"\d\d:\d\d:\d\d 100 %s"),
  ("ps     variables\nps 0           3", r"ps     variables\nps 0           3")])
def test_a_log_line_of_a_task_begins_with_the_time_unless_it_is_a_table(message, expected):
  record = logging.LogRecord("tf1ps", logging.INFO, "", 0, "%s", (message,), None)
  assert re.fullmatch(expected, app._TaskFormatter().format(record))
