from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import tests.conftest

STARTS_A_PROCESS = """
import os, subprocess, sys

def test_that_starts_a_process():
  process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({})"],
                             start_new_session=True)
  environ = "/proc/%d/environ" % process.pid
  while os.environ["TF1PS_TEST_SESSION"].encode() not in open(environ, "rb").read():
    pass  # a process shows its environment a moment after it has begun
  print("pid=%d" % process.pid)
"""


def run_pytest(folder, seconds, grace):
  """Runs one test that leaves a process of so many seconds behind; returns how that run ended."""
  source = pathlib.Path(tests.conftest.__file__).read_text()
  assert source.count("GRACE = 60 ") == 1
  (folder / "conftest.py").write_text(source.replace("GRACE = 60 ", "GRACE = {} ".format(grace)))
  (folder / "leaves_test.py").write_text(STARTS_A_PROCESS.format(seconds))
  return subprocess.run(
      [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "leaves_test.py"],
      cwd=str(folder), stdout=subprocess.PIPE, universal_newlines=True)


def command_line(process):
  """What a live process was started as; empty when it has ended, reaped or not."""
  try:
    return pathlib.Path("/proc", process, "cmdline").read_bytes()
  except OSError:
    return b""


def test_a_process_left_behind_fails_the_run_and_is_killed(tmp_path):
  result = run_pytest(tmp_path, seconds=600, grace=0.2)
  process = result.stdout.split("pid=")[1].split()[0]
  assert result.returncode == 1
  assert "the tests left processes behind" in result.stdout
  assert "{}: {} -c import time".format(process, sys.executable) in result.stdout
  assert command_line(process) == b""


def test_a_process_that_ends_shortly_after_is_no_fault(tmp_path):
  result = run_pytest(tmp_path, seconds=0.5, grace=60)
  assert result.returncode == 0, result.stdout
  assert "1 passed" in result.stdout


@pytest.mark.parametrize("name", ["TF_ENABLE_ONEDNN_OPTS", "CUDA_VISIBLE_DEVICES",
                                  "TF1PS_TEST_SESSION"])
def test_the_environment_is_set_for_this_process_and_those_that_it_starts(name):
  output = subprocess.check_output(
      [sys.executable, "-c", "import os, tf1ps; print(os.environ['{}'])".format(name)], cwd=os.sep)
  assert output.decode().strip() == os.environ[name] != ""


@pytest.mark.parametrize("after, imported, expected", [
  ({"kept": "1", "PYTEST_CURRENT_TEST": "a"}, False, set()),
  ({"kept": "2", "new": "1"}, False, {"kept", "new"}),
  ({"kept": "2", "new": "1"}, True, {"kept"}),  # TensorFlow's import writes new variables
  ({}, True, {"kept"})])
def test_a_test_may_change_no_variable(after, imported, expected):
  assert tests.conftest.changed_names({"kept": "1"}, after, imported) == expected
