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
    (["--checkpoint_dir=/no"], "nothing to write: give --output, a file or a directory"),
    (["--checkpoint_dir=/no", "--output=y.csv"],
     "the checkpoint directory /no does not exist"),
    (["--checkpoint_dir=/no", "--output=y", "--input=x.csv"], "--input=x.csv: a SavedModel has no "
     "predictions. Give --output a file, such as y.csv"),
    (["--checkpoint_dir=/no", "--output=y.csv", "--input=x.csv", "--on_bad_record=skip"],
     "--on_bad_record=skip applies to the program's own input: each record of --input must be "
     "good"),
    (["--checkpoint_dir=/no", "--output=y.csv", "--input=x.txt"],
     "the new data must end in .csv, .jsonl, .npz, .tfrecord, got 'x.txt'"),
    (["--checkpoint_dir=/no", "--output=y.txt"],
     "output must end in .csv, .jsonl, .npz, got 'y.txt'"),
    (["--checkpoint_dir=/no", "--output=/no/such/y.csv"],
     "output '/no/such/y.csv': the folder /no/such does not exist")])
def test_what_it_needs_before_the_import_of_the_program(start, tmp_path, argv, text):
  program = commands.write(tmp_path, "p.py", commands.TALKING)
  assert commands.run(start, "tf1ps-predict", program, *argv) == (1, ["tf1ps-predict: " + text])


@pytest.mark.parametrize("argv, text", [
    (["--checkpoint_dir=jbos"], "the checkpoint directory jbos does not exist; did you mean "
     "jobs?"),
    (["--checkpoint_dir=empty"], "empty has no checkpoint"),
    (["--checkpoint=jobs/model.ckpt-70"], "the checkpoint jobs/model.ckpt-70 does not exist: give "
     "the path without the endings of its files, such as DIR/model.ckpt-100; did you mean "
     "jobs/model.ckpt-7?"),
    (["--checkpoint_dir=jobs", "--input=nwe.csv"],
     "the file nwe.csv does not exist; did you mean new.csv?")])
def test_a_path_that_is_not_there_names_the_nearest(start, tmp_path, argv, text):
  program = commands.write(tmp_path, "p.py", commands.TALKING)
  for file in "jobs/model.ckpt-7.index", "new.csv", "empty/a":
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("x\n1\n")
  argv = [program, "--output=y.csv", *argv]
  assert commands.run(start, "tf1ps-predict", *argv, folder=tmp_path) == (
    1, ["tf1ps-predict: " + text])


def test_a_file_or_a_saved_model(start, trained):
  for output, said in ("y.jsonl", "10 predictions in y.jsonl"), (
      "exported", "SavedModel in exported"):
    argv = ["--checkpoint_dir=.", "--output=" + output, "--batch_size=4"]
    assert commands.run(start, "tf1ps-predict", PROGRAM, *argv, folder=trained) == (0, [said])
  found = [json.loads(line)["y"] for line in (trained / "y.jsonl").read_text().splitlines()]
  assert found == [2.0 * x + 1.0 for x in range(10)]
  assert (trained / "exported" / "saved_model.pb").exists()


def test_new_data_take_the_place_of_the_programs(start, trained):
  (trained / "new.csv").write_text("x\n3\n-1\n")
  argv = ["--checkpoint_dir=.", "--input=new.csv", "--output=y.jsonl"]
  assert commands.run(start, "tf1ps-predict", PROGRAM, *argv, folder=trained) == (
    0, ["2 predictions in y.jsonl"])
  lines = (trained / "y.jsonl").read_text().splitlines()
  assert [json.loads(line)["y"] for line in lines] == [7.0, -1.0]


def test_another_checkpoint_can_be_chosen(start, trained):
  for output, said in ("y.jsonl", "10 predictions in y.jsonl"), (
      "exported/", "SavedModel in exported/"):
    argv = ["--checkpoint=model.ckpt-3", "--output=" + output]
    assert commands.run(start, "tf1ps-predict", PROGRAM, *argv, folder=trained) == (0, [said])
  found = [json.loads(line)["y"] for line in (trained / "y.jsonl").read_text().splitlines()]
  assert found == [2.0 * x for x in range(10)]


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
  assert task.last_line == "tf1ps-predict: ended by signal 15"
  assert set(os.listdir(str(trained))) - before <= {"__pycache__"}
