from __future__ import annotations

import subprocess
import sys

import pytest

from tf1ps.program import source

FINE = "def input_fn(mode, shard):\n  pass\n\n\ndef model_fn(features, labels, mode):\n  pass\n"


@pytest.fixture
def check(tmp_path):
  """Checks a program of this text; returns what is wrong with it, or ""."""
  def check_text(text):
    path = tmp_path / "program.py"
    path.write_text(text)
    try:
      source.check_source(str(path))
    except source.ProgramError as error:
      return str(error).replace(str(tmp_path) + "/", "")
    return ""

  return check_text


@pytest.mark.parametrize("text", [
  FINE,
  FINE.replace("mode):", "mode, size=len('ab'), *more, name='a', **others):"),
  "from other import *\n",
  "import other\ninput_fn = model_fn = other.make\n",
  "from other import input_fn, make as model_fn\n",
  "try:\n  from other import input_fn\nexcept ImportError:\n  def input_fn(mode, shard): pass\n"
  "if True:\n  def model_fn(f, l, m): pass\n",
  "globals().update(input_fn=print, model_fn=print)\n",
  "import sys\nsetattr(sys.modules[__name__], 'input_fn', 1)\n",
  "def set():\n  global input_fn, model_fn\n  input_fn = model_fn = print\nset()\n",
  "def __getattr__(name):\n  return print\n",
  "import other\n@other.decorate\ndef input_fn(a): pass\n@other.decorate\ndef model_fn(): pass\n",
  "class model_fn: pass\nwith open(__file__) as input_fn: pass\n",
  FINE + "def input_fn(a): pass\ninput_fn = print\n",
])
def test_a_program_that_may_be_right_is_left_to_its_import(check, text):
  assert check(text) == ""


@pytest.mark.parametrize("text, said", [
  ("def input_fn(mode, shard)\n  pass\n",
   r"program.py cannot be imported (program.py:1): SyntaxError: "),
  ("", "program.py has no function input_fn(mode, shard)"),
  (FINE.replace("input_fn", "inputs_fn"),
   "program.py has no function input_fn(mode, shard); did you mean inputs_fn?"),
  ("def input_fn(mode, shard):\n  def model_fn(features, labels, mode): pass\n",
   "program.py has no function model_fn(features, labels, mode)"),
  (FINE.replace("(features, labels, mode)", "(features, mode)"),
   "program.py: model_fn(features, mode) must take (features, labels, mode), and every other "
   "parameter must have a default: too many positional arguments"),
  (FINE.replace("(mode, shard)", "(mode, shard, size: int, name='a')"),
   "program.py: input_fn(mode, shard, size, name='a') must take (mode, shard), and every other "),
  (FINE.replace("(features, labels, mode)", "(mode, features, labels)"),
   "program.py: model_fn(mode, features, labels) takes its parameters in another order than "),
])
def test_a_mistake_that_the_text_shows(check, text, said):
  assert check(text).startswith(said)


def test_the_line_of_a_syntax_error_is_shown(check):
  assert check(FINE + "x = (1,\n").count("\n") == 0
  assert "(program.py:7): SyntaxError: " in check(FINE + "x = 1 +\n")
  assert check(FINE + "x = 1 +\n").endswith(": x = 1 +")


def test_a_file_with_a_null_byte(check):
  assert check(FINE + "\0").startswith("program.py cannot be imported")


def test_a_file_that_is_not_there(tmp_path):
  (tmp_path / "digits.py").write_text(FINE)
  with pytest.raises(source.ProgramError) as caught:
    source.check_source(str(tmp_path / "digit.py"))
  assert str(caught.value) == (
    "the program %s/digit.py does not exist; did you mean %s/digits.py?" % (tmp_path, tmp_path))


@pytest.mark.parametrize("module", ["no_such_package.module", "no_such_module", "sys"])
def test_a_module_without_a_file_is_left_to_the_import(module):
  source.check_source(module)


def test_a_module_is_checked_by_its_name(tmp_path, monkeypatch):
  (tmp_path / "a_program.py").write_text("def input_fn(mode, shard): pass\n")
  monkeypatch.syspath_prepend(str(tmp_path))
  with pytest.raises(source.ProgramError, match="^a_program has no function model_fn"):
    source.check_source("a_program")
  assert "a_program" not in sys.modules


@pytest.mark.parametrize("name", ["local", "worker", "ps"])
def test_a_command_line_answers_before_tensorflow(tmp_path, name):
  (tmp_path / "program.py").write_text("def input_fn(mode, shard): pass\n")
  code = ("import sys; from tf1ps.cli import %s as program\n"
          "code = program.run(['--program=program.py', '--steps=1'])\n"
          "print(code, 'tensorflow' in sys.modules, 'numpy' in sys.modules)" % name)
  done = subprocess.run([sys.executable, "-c", code], cwd=str(tmp_path), stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE, universal_newlines=True)
  assert done.stdout.splitlines()[-1] == "1 False False"
  assert done.stderr == ("tf1ps-%s: program.py has no function model_fn(features, labels, mode)\n"
                         % name)
