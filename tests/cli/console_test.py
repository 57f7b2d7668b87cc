from __future__ import annotations

import os
import re
import resource
import runpy
import signal
import subprocess
import sys

import pytest

from tests.cli import commands
from tf1ps import version
from tf1ps.cli import console
from tf1ps.cluster import SignalQueue
from tf1ps.compat import ENDING_SIGNALS, EarlyEnd, remove_early_end

# A program's imports do not end.
WAITS = """
import sys, threading
class Finder:
  @staticmethod
  def find_spec(name, path=None, target=None):
    if name.startswith("tf1ps.cli.") and name != "tf1ps.cli.console":
      print(name, flush=True)
      threading.Event().wait(60)
sys.meta_path.insert(0, Finder)
"""


COMMAND = str(commands.ROOT / "bin" / "tf1ps.py")
STAY = ["evaluator", "local", "ps", "run", "task", "worker"]  # scripts and schedulers call them


def call(*argv, **env):
  """Calls `tf1ps`; returns its exit code, stdout and stderr."""
  done = subprocess.run([sys.executable, COMMAND, *argv], stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE, universal_newlines=True, timeout=60,
                        env=dict(os.environ, **env))
  return done.returncode, done.stdout, done.stderr


def test_the_console_scripts_and_the_files_in_bin(monkeypatch):
  import setuptools  # late: it takes longer than the tests of this file

  made = {}
  monkeypatch.setattr(setuptools, "setup", made.update)
  runpy.run_path(str(commands.ROOT / "setup.py"))
  scripts = made["entry_points"]["console_scripts"]
  assert scripts == ["tf1ps = tf1ps.cli.console:main"] + [
    "tf1ps-%s = tf1ps.cli.console:%s" % (name, name) for name in sorted(console.PROGRAMS)]
  files = sorted((commands.ROOT / "bin").glob("*.py"))
  assert [path.name for path in files] == ["tf1ps.py"] + ["tf1ps_%s.py" % name for name in STAY]
  assert os.access(COMMAND, os.X_OK)
  assert all(str(path.resolve()) == COMMAND for path in files)
  for name, path in zip(STAY, files[1:]):
    done = subprocess.run([str(path), "--version"], stdout=subprocess.PIPE, check=True,
                          env=dict(os.environ, PATH=os.path.dirname(sys.executable)))
    assert done.stdout.decode() == "tf1ps-%s %s\n" % (name, version.__version__)


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_the_command_lists_its_subcommands(argv):
  code, output, errors = call(*argv)
  assert (code, errors) == (0, "")
  assert re.findall(r"^  (\w+) +(\w.*)$", output, re.MULTILINE)[1:] == list(
    console.PROGRAMS.items())
  assert max(map(len, output.splitlines())) <= 88


@pytest.mark.slow
def test_each_subcommand_answers_within_a_second_without_tensorflow(tmp_path):
  (tmp_path / "tensorflow").mkdir()
  (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  assert call("--version") == (0, "tf1ps %s\n" % version.__version__, "")
  for name in console.PROGRAMS:
    said = call(name, "--version", PYTHONPATH=str(tmp_path))
    assert said == (0, "tf1ps-%s %s\n" % (name, version.__version__), "")
    code, output, errors = call(name, "--help", PYTHONPATH=str(tmp_path))
    assert (code, errors) == (0, "") and "tf1ps-" + name in output.partition("\n")[0]
    code, output, errors = call(name, "--hlep", PYTHONPATH=str(tmp_path))
    assert code != 0 and "tf1ps-" + name in errors and "imported" not in output + errors
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
  assert used / (1 + 3 * len(console.PROGRAMS)) < 1.0  # of a processor: others do not slow it down


@pytest.mark.parametrize("name, advice", [
  ("lcoal", "; did you mean `tf1ps local`?"), ("stats", "; did you mean `tf1ps status`?"),
  ("digits.py", "; to train this program: tf1ps local digits.py"), ("--steps=3", "")])
def test_a_subcommand_that_is_not_there(name, advice):
  assert call(name) == (
    1, "", "tf1ps: %s is not a subcommand%s (see tf1ps --help)\n" % (name, advice))


def test_a_signal_while_a_program_is_imported(tmp_path):
  """The imports take seconds on a busy machine."""
  (tmp_path / "sitecustomize.py").write_text(WAITS)
  env = dict(os.environ, PYTHONPATH=str(tmp_path))
  pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
  started = [(name, number, subprocess.Popen([sys.executable, COMMAND, name], env=env, **pipes))
             for name in ("certs", "reset", "worker") for number in (signal.SIGINT, signal.SIGTERM)]
  for name, number, process in started:
    assert process.stdout.readline() == "tf1ps.cli.%s\n" % name
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (
      128 + number, "tf1ps-%s: ended by signal %d\n" % (name, number))


def test_a_wrong_variable_of_the_environment_is_one_line():
  done = subprocess.run(
    [sys.executable, COMMAND, "status"], env=dict(os.environ, TF1PS_START_TIMEOUT="soon"),
    stderr=subprocess.PIPE, universal_newlines=True)
  assert (done.returncode, done.stderr) == (
    1, "tf1ps-status: TF1PS_START_TIMEOUT must be a positive number of seconds, got 'soon'\n")


@pytest.mark.parametrize("ignored", [None, signal.SIGHUP])
def test_who_replaces_the_handlers(ignored):
  """What a program itself ignores, or handles, stays so."""
  before = [signal.getsignal(number) for number in ENDING_SIGNALS]
  early = EarlyEnd("name")
  try:
    if ignored is not None:
      signal.signal(ignored, signal.SIG_IGN)
    early.install()
    mine = [number for number in ENDING_SIGNALS if number != ignored]
    assert [n for n in ENDING_SIGNALS if signal.getsignal(n) is early] == mine
    with SignalQueue(replaces_handlers=False):
      assert not any(signal.getsignal(number) is early for number in ENDING_SIGNALS)
    assert [n for n in ENDING_SIGNALS if signal.getsignal(n) is early] == mine
    remove_early_end()
    now = [signal.SIG_IGN if n == ignored else old for n, old in zip(ENDING_SIGNALS, before)]
    assert [signal.getsignal(number) for number in ENDING_SIGNALS] == now
  finally:
    for number, handler in zip(ENDING_SIGNALS, before):
      signal.signal(number, handler)
