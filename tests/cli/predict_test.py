from __future__ import annotations

import json
import os
import signal

import pytest

from tests import program_tasks
from tests.cli import commands
from tests.training import line_program

PROGRAM = "--program=tests.training.line_program"


@pytest.fixture
def trained(tmp_path):
  """A directory whose newest checkpoint says y = 2 x + 1."""
  line_program.save(tmp_path, 3, 2.0, 0.0)
  line_program.save(tmp_path, 7, 2.0, 1.0)
  return tmp_path


@pytest.mark.parametrize("argv, text", [
    (["--output=y.csv"], "--checkpoint_dir is missing: the directory of a finished job"),
    (["--checkpoint_dir=/no"], "nothing to write: give --output, --export_dir, or both"),
    (["--checkpoint_dir=/no", "--output=y.csv"], "there is no checkpoint in /no"),
    (["--checkpoint_dir=/no", "--output=y.txt"],
     "output must end in .csv, .jsonl, .npz, got 'y.txt'"),
    (["--checkpoint_dir=/no", "--output=/no/such/y.csv"],
     "output '/no/such/y.csv': there is no folder /no/such")])
def test_what_it_needs(start, argv, text):
  assert commands.run(start, "tf1ps-predict", PROGRAM, *argv) == (1, ["tf1ps-predict: " + text])


def test_both_outputs_at_once(start, trained):
  argv = ["--checkpoint_dir=.", "--output=y.jsonl", "--export_dir=exported", "--batch_size=4"]
  assert commands.run(start, "tf1ps-predict", PROGRAM, *argv, folder=trained) == (
    0, ["10 predictions in y.jsonl", "SavedModel in exported"])
  found = [json.loads(line)["y"] for line in (trained / "y.jsonl").read_text().splitlines()]
  assert found == [2.0 * x + 1.0 for x in range(10)]
  assert (trained / "exported" / "saved_model.pb").exists()


def test_another_checkpoint_can_be_chosen(start, trained):
  argv = ["--checkpoint=model.ckpt-3", "--output=y.jsonl", "--export_dir=exported"]
  assert commands.run(start, "tf1ps-predict", PROGRAM, *argv, folder=trained) == (
    0, ["10 predictions in y.jsonl", "SavedModel in exported"])
  found = [json.loads(line)["y"] for line in (trained / "y.jsonl").read_text().splitlines()]
  assert found == [2.0 * x for x in range(10)]


def test_the_kind_of_variables_is_told_on(start, trained):
  kinds = []
  for variables in "resource", "ref":
    program = commands.write(trained, "tells_%s.py" % variables, (
      "from tests.training.line_program import input_fn, model_fn as line_model\n"
      "import tensorflow.compat.v1 as tf\n"
      "def model_fn(features, labels, mode):\n"
      "  spec = line_model(features, labels, mode)\n"
      "  print(sorted({v.op.type for v in tf.global_variables() if v.op.name != 'global_step'}))\n"
      "  return spec\n"))
    code, lines = commands.run(
      start, "tf1ps-predict", program, "--checkpoint_dir=.", "--output=y.csv",
      "--variables=" + variables, folder=trained)
    assert (code, len(lines)) == (0, 2), lines
    kinds.append(lines[0])
  assert kinds == ["['VarHandleOp']", "['VariableV2']"]


def test_a_signal_leaves_no_temporary_file(start, trained):
  program = commands.write(trained, "endless.py", (
    "from tests.training.line_program import model_fn\n"
    "import tensorflow.compat.v1 as tf\n"
    "def input_fn(mode, shard):\n"
    "  rows = tf.data.Dataset.from_tensors({'x': [1.]}).repeat()\n"
    "  def told(row):\n"
    "    return tf.py_func(lambda x: print('reading', flush=True) or x, [row['x']], tf.float32)\n"
    "  return rows.map(lambda row: {'x': tf.ensure_shape(told(row), [1])})\n"))
  before = set(os.listdir(str(trained)))
  task = start("predict", program_tasks.run_program, "tf1ps-predict",
               [program, "--checkpoint_dir=.", "--output=y.csv"], trained)
  task.wait_for("reading")
  task.signal(signal.SIGTERM)
  assert task.wait() == 143
  assert task.lines[-1] == "tf1ps-predict: ended by signal 15"
  assert set(os.listdir(str(trained))) - before <= {"__pycache__"}
