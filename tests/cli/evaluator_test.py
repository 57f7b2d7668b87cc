from __future__ import annotations

import re
import signal

import pytest

from tests import program_tasks
from tests.cli import commands
from tests.training import line_program
from tf1ps.state import run, run_status

PROGRAM = "--program=tests.training.line_program"


@pytest.fixture
def ended(tmp_path):
  """The checkpoint directory of a run that has ended: y is 2 x, where 2 x + 1 is right."""
  line_program.save(tmp_path, 3, 2.0, 0.0)
  run.RunFile(str(tmp_path)).write("old", run_status.RUN_ENDED, 3)
  return tmp_path


def test_it_needs_a_directory(start):
  assert commands.run(start, "tf1ps-evaluator", PROGRAM) == (1, [
    "tf1ps-evaluator: --checkpoint_dir is missing: an evaluator follows the checkpoints there"])


def test_a_run_that_has_ended(start, ended):
  code, lines = commands.run(start, "tf1ps-evaluator", PROGRAM, "--checkpoint_dir=%s" % ended,
                             "--start_timeout=0.1")
  assert code == 0
  said = r"test bias -1\.0000, test worst 1\.0000, test loss 1\.0000 at step 3 " \
         r"\(10 examples, \d+\.\d s\)"
  lines[:2] = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines[:2]]
  assert len(lines) == 3 and re.match(said + "$", lines[1])
  assert lines[0] == ("the last run has ended; waiting 0.1 s for a new run (with "
                      "--checkpoint=latest, it does not wait)")
  assert re.match(r"evaluator: 1 evaluation, %s, the run has ended at step 3, exit code 0$" % said,
                  lines[2])


def test_one_evaluation_waits_for_no_run(start, ended):
  code, lines = commands.run(
    start, "tf1ps-evaluator", PROGRAM, "--checkpoint_dir=%s" % ended,
    "--checkpoint=latest")
  assert code == 0 and len(lines) == 2
  assert re.match("evaluator: 1 evaluation, .* at step 3 .*, one evaluation was asked for, exit",
                  lines[-1])


def test_a_cluster_without_ps_is_all_reduces(start, tmp_path):
  code, lines = commands.run(
    start, "tf1ps-evaluator", PROGRAM, "--checkpoint_dir=%s" % tmp_path, "--start_timeout=0.1",
    "--worker_hosts=a:1,b:2")
  assert code == 1 and "no run appeared" in lines[-1]


def test_a_run_that_does_not_come(start, tmp_path):
  code, lines = commands.run(start, "tf1ps-evaluator", PROGRAM, "--checkpoint_dir=%s" % tmp_path,
                             "--start_timeout=0.1")
  assert (code, len(lines)) == (1, 1)
  assert re.match(r"evaluator: 0 evaluations, no run appeared within \d+ s, exit code 1$", lines[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_evaluator_that_is_told_to_stop(start, ended, number):
  task = start("evaluator", program_tasks.run_program, "tf1ps-evaluator",
               [PROGRAM, "--checkpoint_dir=%s" % ended], "/")
  task.wait_for("test bias")
  task.signal(number)
  assert task.wait() == 128 + number
  assert re.match(r"evaluator: 1 evaluation, .*, ended by signal %d, exit code %d$" % (
    number, 128 + number), task.last_line)


@pytest.mark.parametrize("name", ["tf1ps-evaluator", "tf1ps-predict"])
def test_an_error_in_the_users_model_shows_its_file_and_line(start, ended, name):
  program = commands.write(ended, "no_model.py", (
    "from tests.training.line_program import input_fn\n\n"
    "def model_fn(features, labels, mode):\n  raise ValueError('no model today')\n"))
  code, lines = commands.run(
    start, name, program, "--checkpoint_dir=%s" % ended,
    "--start_timeout=0.1" if name == "tf1ps-evaluator" else "--output=%s/y.csv" % ended)
  assert code == 1
  assert '  File "%s/no_model.py", line 4, in model_fn' % ended in lines
  assert lines[-1] == name + ": no_model.py:4 in model_fn: ValueError: no model today"
