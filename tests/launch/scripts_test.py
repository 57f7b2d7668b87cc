"""A script that starts all of its tasks by itself."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tf1ps.compat import timing
from tf1ps.launch import run_together

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
SCRIPT = """
import os, sys, time
sys.path.insert(0, %r)
from tf1ps.launch import run_together

def main():
  if len(sys.argv) == 1:
    return run_together(main, %%s)
  %%s

sys.exit(main())
""" % ROOT
pytestmark = pytest.mark.any_tensorflow


def write(folder, lists, body, limit=60.0):
  path = folder / "script.py"
  path.write_text(SCRIPT % (lists, body))
  return dict(args=[sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
              universal_newlines=True, env=dict(os.environ, **{timing.VARIABLE: json.dumps(
                {"script_tasks_end_limit": limit, "local_poll_interval": 0.01})}))


def run(folder, lists, body, limit=60.0):
  return subprocess.run(timeout=60, **write(folder, lists, body, limit))


def test_the_lines_are_in_the_order_of_the_tasks(tmp_path):
  done = run(tmp_path, "['a', '0'], ['b', 'x y'], ['c']",
             "print(os.getpid() != os.getppid(), *sys.argv[1:])")
  assert done.returncode == 0
  assert done.stdout.splitlines() == ["True a 0", "True b x y", "True c"]
  path = tmp_path / "script.py"
  assert done.stderr.splitlines() == [
    "1$ python %s a 0" % path, "2$ python %s b 'x y'" % path, "3$ python %s c" % path]


def test_the_commands_come_before_the_errors_of_the_tasks(tmp_path):
  done = run(tmp_path, ", ".join(["['a']"] * 8), "os.write(2, b'error\\n')")
  path = tmp_path / "script.py"
  assert done.stderr.splitlines() == [
    "%d$ python %s a" % (number, path) for number in range(1, 9)] + ["error"] * 8


@pytest.mark.parametrize("failure, code", [
  ("sys.exit(3)", 3), ("raise OSError('no disk')", 1), ("sys.exit('no disk')", 1), ("return 4", 4),
  ("os.kill(os.getpid(), 9)", 137), ("return [7]", 1)])
def test_a_task_that_fails_gives_its_exit_code(failure, code, tmp_path):
  done = run(tmp_path, "['a'], ['b']",
             "print(*sys.argv[1:], flush=True)\n  if sys.argv[1] == 'b': %s" % failure)
  assert done.returncode == code
  assert done.stdout.splitlines() == ["a", "b"]
  assert ("no disk" in done.stderr) == ("no disk" in failure)


def test_a_task_that_fails_ends_the_others(tmp_path):
  done = run(tmp_path, "['a'], ['b']",
             "print(*sys.argv[1:], flush=True)\n"
             "  time.sleep(1000) if sys.argv[1] == 'a' else sys.exit(2)", limit=1.0)
  assert done.returncode == 2


SAVE = """
  try:
    if sys.argv[1] == 'b':
      open(%r, "w").close()
    while not os.path.exists(%r):
      time.sleep(0.01)
    print("up", flush=True)
    while True:
      time.sleep(0.01)
  except KeyboardInterrupt:
    print("saved", *sys.argv[1:])
    sys.exit(0 if sys.argv[1] == 'a' else 3)
"""


def test_a_signal_reaches_each_task_which_has_time_to_save(tmp_path):
  path = str(tmp_path / "b is up")
  with subprocess.Popen(**write(tmp_path, "['a'], ['b']", SAVE % (path, path))) as process:
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGINT
  assert (first + out).splitlines() == ["up", "saved a", "up", "saved b"]
  assert "Traceback" not in err


def test_a_signal_while_tasks_are_started_reaches_each_of_them(tmp_path):
  body = """
  try:
    if sys.argv[1] == '0':
      os.kill(os.getppid(), signal.SIGINT)
    while True:
      time.sleep(0.01)
  except KeyboardInterrupt:
    print("saved", *sys.argv[1:])

import signal
"""
  done = run(tmp_path, ", ".join("['%d']" % number for number in range(20)), body)
  assert done.returncode == 128 + signal.SIGINT
  # One that was still on its way to its function ends before it.
  assert "saved 0" in done.stdout.splitlines()


def test_signals_come_again_after_a_task_that_could_not_be_started(monkeypatch):
  def fail():
    raise OSError("no room for another process")

  monkeypatch.setattr(os, "fork", fail)
  before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
  with pytest.raises(OSError, match="no room"):
    run_together(lambda: None, ["a"])
  assert signal.pthread_sigmask(signal.SIG_SETMASK, before) == before


@pytest.mark.parametrize("limit, signals", [(1.0, 1), (100.0, 2)])
def test_a_task_that_does_not_end_after_a_signal_is_killed(tmp_path, limit, signals):
  # The signal may arrive during the print, which then must not be called again.
  body = ("import signal; signal.signal(signal.SIGTERM, lambda *got: os.write(1, b'no\\n'))\n"
          "  print(os.getpid(), flush=True)\n  while True: time.sleep(1)")
  with subprocess.Popen(**write(tmp_path, "['a']", body, limit)) as process:
    task = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "no\n"
    if signals == 2:
      process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
  with pytest.raises(ProcessLookupError):
    os.kill(task, 0)


def test_each_task_draws_numbers_of_its_own(tmp_path):
  done = run(tmp_path, "['a'], ['b']", "print(numpy.random.rand())\n\nimport numpy")
  first, second = done.stdout.splitlines()
  assert first != second


def test_a_task_that_would_start_all_tasks_again_is_refused(tmp_path):
  done = run(tmp_path, "[]", "")
  assert done.returncode == 1
  assert "RuntimeError: the task with the arguments [] called run_together again" in done.stderr


@pytest.mark.parametrize("lists", [[], ["ab"], [["a", 1]]])
def test_arguments_that_are_no_lists_of_strings(lists):
  with pytest.raises(ValueError, match="run_together needs lists of strings, got"):
    run_together(lambda: None, *lists)
