from __future__ import annotations

import pytest

from tests.cli import commands
from tf1ps.cli import errors, program_flags

OTHERS = """
from absl import flags
flags.DEFINE_integer("rows", 3, "How many rows.")
FLAGS = {"rows": 5, "steps": 2}
print("imported with", flags.FLAGS["rows"].default)
def input_fn(mode, shard): pass
def model_fn(features, labels, mode): pass
"""


def read(tmp_path, text):
  path = tmp_path / "program.py"
  path.write_text(text)
  return program_flags.read(str(path))


@pytest.mark.parametrize("text, values, arguments", [
  ('FLAGS = {"epochs": 30, "learning_rate": 1, "sync_replicas": True}',
   {"epochs": 30, "learning_rate": 1, "sync_replicas": True},
   ["--epochs=30", "--learning_rate=1", "--sync_replicas=true"]),
  ('FLAGS: dict = dict(batch_size=[64, 32], container=None)', {"batch_size": [64, 32]},
   ["--batch_size=64,32"]),
  ('FLAGS = {}\nFLAGS = {"staleness_policy": "drop:3,damp"}', {"staleness_policy": "drop:3,damp"},
   ["--staleness_policy=drop:3,damp"]),
  ('from absl import flags\nFLAGS = flags.FLAGS', {}, []),
  ('def f():\n  FLAGS = {"nothing": 1}', {}, []),
  ('FLAGS = {"epochs": 1\n', {}, []),  # the import says what is wrong
])
def test_what_a_program_brings(tmp_path, text, values, arguments):
  found = read(tmp_path, text)
  assert found.values == values and program_flags.as_arguments(found) == arguments


def test_a_program_that_is_not_there_brings_nothing():
  for name in ("no_such_module", "no_such.module", "no/such.py", "sys"):
    assert program_flags.read(name) == program_flags.NONE


@pytest.mark.parametrize("text, problem", [
  ('FLAGS = {"epochs": "x"}', "FLAGS['epochs'] must be a whole number, got 'x'"),
  ('FLAGS = {"epochs": True}', "FLAGS['epochs'] must be a whole number, got True"),
  ('FLAGS = {"epochs": 0}', "FLAGS['epochs'] must be above 0, got 0"),
  ('FLAGS = {"clip_norm": "0.1"}', "FLAGS['clip_norm'] must be a number, got '0.1'"),
  ('FLAGS = {"sync_replicas": 1}', "FLAGS['sync_replicas'] must be true, false, or from 2 on the "
                                   "gradients in an update, got 1"),
  ('FLAGS = {"optimizer": "adams"}', "FLAGS['optimizer'] must be the name of an optimizer "),
  ('FLAGS = {"optimizer": 1}', "FLAGS['optimizer'] must be a text, got 1"),
  ('FLAGS = {"batch_size": "many"}', "FLAGS['batch_size'] must be a number, or a number for each "),
  ('FLAGS = {"learning_rate": "0.1,cosine"}', "must have cosine:STEPS or cosine:STEPS:FACTOR"),
  ('FLAGS = {"keep_best": "loss:0"}', "FLAGS['keep_best'] must be METRIC, METRIC:min or"),
  ('FLAGS = {"task_index": 1}', "FLAGS['task_index'] differs between tasks: give --task_index on "
                                "the command line"),
  ('\nN = 3\nFLAGS = {"epochs": N}', ":3: FLAGS must be a dict of plain values by the names of "
                                     "flags, such as {\"epochs\": 30}"),
  ('FLAGS = {1: 2}', ":1: FLAGS must be a dict of plain values"),
])
def test_what_is_wrong(tmp_path, text, problem):
  with pytest.raises(errors.UsageError) as caught:
    read(tmp_path, text)
  assert problem in str(caught.value) and str(tmp_path / "program.py") in str(caught.value)


def test_the_command_line_comes_first_and_one_end_replaces_all(tmp_path):
  found = read(
    tmp_path, 'FLAGS = {"epochs": 3, "examples": 5, "batch_size": 4, "optimizer": "sgd"}')
  for given, kept in (([], ["batch_size", "epochs", "examples", "optimizer"]),
                      (["batch_size"], ["epochs", "examples", "optimizer"]),
                      (["steps", "optimizer"], ["batch_size"])):
    assert sorted(program_flags.without_given(found, given.__contains__).values) == kept


@pytest.mark.parametrize("name", [each for each in commands.OF_PROGRAMS if each != "tf1ps-task"])
def test_every_program_refuses_a_flag_that_does_not_exist(start, tmp_path, name):
  path = tmp_path / "program.py"
  path.write_text(OTHERS.replace('"steps"', '"epoch"'))
  needed = dict(commands.NEEDED_BY, **{"tf1ps-evaluator": ["--checkpoint_dir=c"]}).get(name, [])
  code, lines = commands.run(start, name, "--program=%s" % path, *needed)
  assert code == 1 and lines[-1] == (
    "%s: %s: FLAGS: --epoch is not a flag; did you mean --epochs? (see tf1ps-local --help)" % (
      name, path))


def test_flags_of_the_program_itself_are_shown_with_their_new_default(start, tmp_path):
  (tmp_path / "program.py").write_text(OTHERS)
  code, lines = commands.run(
    start, "tf1ps-worker", "--program=program.py", "--help", folder=tmp_path)
  shown = "\n".join(lines)
  assert code == 0 and "How many rows. [5]" in shown and " [2]\n" in shown


def test_each_task_gets_the_flags_that_it_has(start, tmp_path):
  path = tmp_path / "program.py"
  path.write_text(OTHERS.replace('"rows": 5', '"start_timeout": 9, "batch_size": 8'))
  lines = commands.call(start, commands.show_tasks, [
    "--program=%s" % path, "--batch_size=4", "--evaluator", "--checkpoint_dir=d"],
    {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}, [""])
  shown = {line.split('"')[1]: line for line in lines if line.startswith("[")}
  assert "--start_timeout=9" in shown["ps 0"] and "--program" not in shown["ps 0"]
  for name, line in shown.items():
    assert "--start_timeout=9" in line and "--batch_size=8" not in line
    assert ("--steps=2" in line) == name.startswith("worker")
