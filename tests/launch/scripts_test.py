"""A script that starts all of its tasks by itself."""
from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import pytest

from tf1ps.launch import find_free_addresses, run_together

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
SCRIPT = """
import os, sys, time
sys.path.insert(0, %r)
from tf1ps.launch import run_together, scripts

scripts._GRACE = 1.0

def main():
  if len(sys.argv) == 1:
    return run_together(main, %%s)
  %%s

sys.exit(main())
""" % ROOT
pytestmark = pytest.mark.any_tensorflow


def run(folder, lists, body):
  path = folder / "script.py"
  path.write_text(SCRIPT % (lists, body))
  return subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, timeout=60,
                        stderr=subprocess.PIPE, universal_newlines=True)


def test_the_lines_are_in_the_order_of_the_tasks(tmp_path):
  done = run(tmp_path, "['a', '0'], ['b', 'x y'], ['c']",
             "print(os.getpid() != os.getppid(), *sys.argv[1:])")
  assert done.returncode == 0
  assert done.stdout.splitlines() == ["True a 0", "True b x y", "True c"]
  path = tmp_path / "script.py"
  assert done.stderr.splitlines() == [
    "1$ python %s a 0" % path, "2$ python %s b 'x y'" % path, "3$ python %s c" % path]


@pytest.mark.parametrize("failure, code", [
  ("sys.exit(3)", 3), ("raise OSError('no disk')", 1), ("sys.exit('no disk')", 1), ("return 4", 4),
  ("os.kill(os.getpid(), 9)", 137)])
def test_a_task_that_fails_gives_its_exit_code(failure, code, tmp_path):
  done = run(tmp_path, "['a'], ['b']",
             "print(*sys.argv[1:], flush=True)\n  if sys.argv[1] == 'b': %s" % failure)
  assert done.returncode == code
  assert done.stdout.splitlines() == ["a", "b"]
  assert ("no disk" in done.stderr) == ("no disk" in failure)


def test_a_task_that_fails_ends_the_others(tmp_path):
  start = time.monotonic()
  done = run(tmp_path, "['a'], ['b']",
             "print(*sys.argv[1:], flush=True)\n"
             "  time.sleep(100) if sys.argv[1] == 'a' else sys.exit(2)")
  assert done.returncode == 2 and time.monotonic() - start < 40


def test_addresses():
  found = find_free_addresses(2)
  assert len(set(found)) == 2 and all(one.startswith("127.0.0.1:") for one in found)


@pytest.mark.parametrize("lists", [[], ["ab"], [["a", 1]]])
def test_arguments_that_are_no_lists_of_strings(lists):
  with pytest.raises(ValueError, match="run_together needs lists of strings, not"):
    run_together(lambda: None, *lists)
