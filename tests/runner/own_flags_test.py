from __future__ import annotations

import ast

import pytest

from tf1ps.runner import own_flags

TF = """
import tensorflow as tf
import more
tf.app.flags.DEFINE_float("learning_rate", 0.1, "")
tf.flags.DEFINE_boolean(name="fast", default=True, help="")
tf.app.run()
"""
ARGPARSE = """
import argparse, more
parser = argparse.ArgumentParser()
parser.add_argument("-r", "--learning-rate", type=float)
%s
"""
KNOWN_ONLY = ARGPARSE % "FLAGS, _ = parser.parse_known_args()"


@pytest.fixture
def ignored(tmp_path, monkeypatch):
  """Returns the flags that a program of a text ignores."""
  (tmp_path / "more.py").write_text("def parse(flags):\n  flags.DEFINE_integer('threads', 1, '')\n")
  monkeypatch.syspath_prepend(str(tmp_path))

  def parse(path):
    with open(path, "rb") as file:
      return ast.parse(file.read())

  def find(text, *arguments):
    (tmp_path / "program.py").write_text(text)
    return own_flags.ignored_flags([str(tmp_path / "program.py")], arguments, parse)

  return find


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("program", [TF, KNOWN_ONLY])
def test_a_flag_that_no_file_has_is_ignored(ignored, program):
  name = "learning_rate" if program == TF else "learning-rate"
  assert ignored(program, "--lerning_rate=0.3", "--treads", "2", "--zqx", "data.csv") == [
    ("lerning_rate", name), ("treads", "threads"), ("zqx", "")]


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("program, arguments", [
  (TF, ["--learning_rate=1", "--nofast", "--threads=2", "-r", "--", "data.csv"]),
  (TF, ["--help"]),
  (KNOWN_ONLY, ["--learning-rate=1", "--learn=1"]),  # argparse takes the beginning of a name
  (TF.replace("tf.app.run", "app.run"), ["--lerning_rate=1"]),  # it refuses the flag
  (TF.replace("tf.app.run", "absl.app.run"), ["--lerning_rate=1"]),
  (ARGPARSE % "parser.parse_args()", ["--lerning_rate=1"]),
  ("import sys\nprint(sys.argv)", ["--lerning_rate=1"]),
  (TF + "if '--speed' in sys.argv: pass", ["--speed"])])
def test_other_flags_are_not(ignored, program, arguments):
  assert ignored(program, *arguments) == []


@pytest.mark.any_tensorflow
def test_a_module_that_is_not_among_the_paths_of_python_has_no_known_flags():
  assert own_flags.ignored_flags([], ["--lr=0.1"], ast.parse) == []
