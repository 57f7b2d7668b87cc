from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.cli import commands
from tf1ps.cli import run
from tf1ps.version import __version__


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
  """Writes a program's files and runs one in this process; returns the exit code and the output."""
  monkeypatch.chdir(str(tmp_path))
  monkeypatch.setattr(sys, "path", list(sys.path))
  monkeypatch.setattr(sys, "argv", list(sys.argv))
  monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
  before = set(sys.modules)

  def run_files(*argv, **files):
    for name, text in files.items():
      (tmp_path / (name + ".py")).write_text(text)
    code = run.run(argv)
    return (code, *capsys.readouterr())

  yield run_files
  for name in set(sys.modules) - before:
    if os.path.dirname(getattr(sys.modules[name], "__file__", None) or "") == str(tmp_path):
      del sys.modules[name]


def test_flags_behind_the_file_belong_to_the_program(call, tmp_path):
  source = "import sys\nprint(sys.argv, sys.path[0], __name__)\nimport near"
  code, out, err = call("train.py", "--print", "--task_index=0", "-m", train=source,
                        near="print(__name__)")
  assert (code, err) == (0, "")
  argv = ["train.py", "--print", "--task_index=0", "-m"]
  assert out == "%s %s __main__\nnear\n" % (argv, tmp_path)
  code, out, _ = call("-m", "train", "--log_dir=a")
  argv = [str(tmp_path / "train.py"), "--log_dir=a"]
  assert (code, out) == (0, "%s %s __main__\n" % (argv, tmp_path))  # near is imported already


@pytest.mark.parametrize("end, expected, said", [
    ("", 0, ""), ("sys.exit()", 0, ""), ("sys.exit(0)", 0, ""), ("sys.exit(3)", 3, ""),
    ("sys.exit(True)", 1, ""), ("sys.exit('no data')", 1, "no data\n"), ("sys.exit(143)", 143, ""),
    ("raise KeyboardInterrupt", 128 + signal.SIGINT, None), ("1 / 0", 1, None)])
def test_the_exit_code_is_the_programs(call, end, expected, said):
  code, out, err = call("train.py", train="import sys\nprint('done')\n" + end)
  assert (code, out) == (expected, "done\n")
  assert said is None or err == said


OPENS = """
import sys
from tf1ps.session import process_end

class Session(process_end.Endable):
  def end_with_process(self, error):
    print("ended after", repr(error))
    if error is None and %s:
      raise RuntimeError("worker 1 failed")

process_end.register(Session())
"""


@pytest.mark.parametrize("end, fails, expected, told, said", [
    ("", False, 0, "None", ""), ("sys.exit(0)", False, 0, "None", ""),
    ("", True, 1, "None", "tf1ps-run: worker 1 failed\n"),
    ("sys.exit(4)", True, 4, "SystemExit(4", ""), ("{}[1]", True, 1, "KeyError(1", None)])
def test_what_the_program_leaves_open_is_ended(call, end, fails, expected, told, said):
  code, out, err = call("train.py", train=OPENS % fails + end)
  assert code == expected and out.startswith("ended after " + told)
  assert said is None or err == said


def test_an_error_shows_the_programs_own_lines(call, tmp_path):
  code, out, err = call("train.py", train="import near\n\nnear.fail()",
                        near="def fail():\n  raise ValueError('mine')")
  lines = [line for line in err.splitlines() if "^" not in line]
  assert (code, out) == (1, "") and lines == [
    "Traceback (most recent call last):",
    '  File "%s", line 3, in <module>' % (tmp_path / "train.py"), "    near.fail()",
    '  File "%s", line 2, in fail' % (tmp_path / "near.py"), "    raise ValueError('mine')",
    "ValueError: mine"]


def test_an_error_of_tf1ps_shows_the_programs_lines_alone(call, tmp_path):
  code, _, err = call("train.py", train="from tf1ps import program\nprogram.load_program('no.py')")
  lines = [line for line in err.splitlines() if "^" not in line]
  assert code == 1 and lines[1:3] == [
    '  File "%s", line 2, in <module>' % (tmp_path / "train.py"),
    "    program.load_program('no.py')"]
  assert "there is no program" in lines[-1] and "tf1ps/" not in err


def test_an_error_of_python_2_names_the_flag_for_it(call):
  hint = "tf1ps-run: this looks like Python 2: tf1ps-run --2to3 mends it while it runs\n"
  for source in "print 'a'", "xrange(3)", "import near":
    code, _, err = call("train.py", train=source, near="print 'near'")
    assert code == 1 and err.endswith(hint) and "tf1ps/" not in err.replace(hint, "")
  code, _, err = call("train.py", train="print('a'")
  assert code == 1 and "SyntaxError" in err and hint not in err


def test_the_flag_for_python_2_is_not_named_to_who_has_given_it(call):
  code, _, err = call("--2to3", "train.py", train="isinstance(1, file)")
  assert code == 1 and "NameError: name 'file'" in err and "like Python 2" not in err


def test_python_2_is_mended_in_memory(call, tmp_path):
  code, out, err = call("--2to3", "train.py", train="import near\nprint 'train', near.half(3)",
                        near="def half(a):\n  print 'near',\n  return a / 2")
  assert (code, out) == (0, "near train 1.5\n")
  assert err == (
    "near.py:3: `/` keeps the fraction in Python 3: write // where integers are divided\n")
  assert (tmp_path / "train.py").read_text() == "import near\nprint 'train', near.half(3)"


def test_print_shows_what_would_be_replaced_and_runs_nothing(call):
  files = dict(train="import tensorflow as tf\nimport near, far\nraise SystemExit(7)",
               near="def late():\n  from tensorflow.contrib import slim",
               far="print 'far', 1 / 2", unused="import tensorflow")
  code, out, err = call("--print", "train.py", "--steps=1", **files)
  assert (code, err) == (1, "") and out.splitlines()[:2] == [
    "train.py:1: import tensorflow as tf -> import tf1ps.v1 as tf",
    "near.py:2: from tensorflow.contrib import slim -> from tf1ps.v1.contrib import slim"]
  assert out.splitlines()[2].startswith("far.py:1: SyntaxError: Missing parentheses")
  assert out.endswith("this looks like Python 2: tf1ps-run --2to3 mends it while it runs\n")
  code, out, err = call("--print", "--2to3", "-m", "train")
  assert (code, err) == (0, "") and out.splitlines()[2:] == [
    "far.py:1: print 'far', 1 / 2 -> print('far', 1 / 2)",
    "far.py:1: `/` keeps the fraction in Python 3: write // where integers are divided"]


@pytest.mark.parametrize("argv, said", [
    ([], "the program's file is missing (see tf1ps-run --help)"),
    (["--2to3"], "the program's file is missing (see tf1ps-run --help)"),
    (["-m"], "the module's name after -m is missing (see tf1ps-run --help)"),
    (["absent.py"], "there is no file absent.py"),
    (["-m", "absent"], "there is no module absent, or no __main__ in the package"),
    (["--prin", "train.py"], "there is no flag --prin; did you mean --print? "
     "(see tf1ps-run --help)")])
def test_a_command_line_that_cannot_be_right(call, argv, said):
  assert call(*argv) == (1, "", "tf1ps-run: %s\n" % said)


BEFORE_1_0 = """
import tensorflow as tf
tf.app.flags.DEFINE_string("log_dir", "", "absl has one as well.")

def main(argv):
  logits, labels = tf.constant([[1., 2.]]), tf.constant([[0., 1.]])
  loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits, labels))
  with tf.Session() as session:
    print("loss %.4f in %s" % (session.run(loss), tf.app.flags.FLAGS.log_dir))

if __name__ == "__main__":
  tf.app.run()
"""


@pytest.mark.parametrize("flags, expected, said", [
    (["--pre_1_0"], 0, "loss 0.3133 in here"), ([], 1, "tf1ps-run --pre_1_0")])
def test_a_program_from_before_1_0(start, tmp_path, flags, expected, said):
  (tmp_path / "train.py").write_text(BEFORE_1_0)
  code, lines = commands.run(
    start, "tf1ps-run", *flags, "train.py", "--log_dir=here", folder=tmp_path)
  assert code == expected and said in "\n".join(lines)


def test_help_and_version(call):
  code, out, _ = call("--help")
  assert code == 0 and max(map(len, out.splitlines())) <= 100
  assert all("  " + name in out for name, _ in run._FLAGS)
  assert call("-h") == (0, out, "") and call("--print", "--help", "x.py") == (0, out, "")
  assert call("--version") == (0, "tf1ps-run %s\n" % __version__, "")


def test_the_script_of_a_checkout(tmp_path):
  """The script's own folder is not on the program's path."""
  (tmp_path / "tf1ps_ps.py").write_text("print('the program')")
  (tmp_path / "train.py").write_text("import sys, tf1ps_ps\nassert sys.path[0] == %r\nsys.exit(5)"
                                     % str(tmp_path))
  done = subprocess.run([sys.executable, str(commands.ROOT / "bin" / "tf1ps_run.py"), "train.py"],
                        cwd=str(tmp_path), stdout=subprocess.PIPE)
  assert (done.returncode, done.stdout) == (5, b"the program\n")
