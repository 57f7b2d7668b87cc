from __future__ import annotations

import signal

import pytest

from tools.flaky import repeat, reports

PLANTED = """
import os
import pathlib

def test_passes():
  pass

def test_fails_in_the_first_run():
  pathlib.Path("processes").open("a").write(os.environ["PYTEST_XDIST_WORKER_COUNT"])
  assert len(pathlib.Path("processes").read_text()) > 1, "it is the first"
"""


def test_what_fails_at_times_is_in_the_table(tmp_path, monkeypatch, capfd):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "planted_test.py").write_text(PLANTED)
  (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\n")
  assert repeat.main(["--runs=2", "--load=0", "--seed=4", "planted_test.py"]) == 1
  assert (tmp_path / "processes").read_text() == "23", "each run has another number"
  lines = capfd.readouterr().out.splitlines()
  assert lines[0].startswith("run 1: 2 processes, seed 5: 1 passed, 1 failed, ")
  assert lines[1:3] == ["planted_test::test_fails_in_the_first_run",
                        "  AssertionError: it is the first"]
  run_2 = next(line for line in lines[3:] if line.startswith("run 2"))
  assert run_2.startswith("run 2: 3 processes, seed 6: 2 passed, 0 failed, ")
  assert lines[lines.index(run_2) + 1:] == [
    "planted_test::test_fails_in_the_first_run  1 of 2 runs  AssertionError: it is the first",
    "1 of 2 tests failed in 2 runs"]


def test_a_run_without_a_report_ends_with_the_reason(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit, match="run 1 has no report: pytest --no_such_option"):
    repeat.main(["--runs=1", "--load=0", "--no_such_option"])


def test_the_table_of_steady_tests():
  steady = reports.Report(passed=["a", "b"], skipped=[], failures={})
  assert repeat.table([steady, steady]) == ["0 of 2 tests failed in 2 runs"]


def test_the_load_ends():
  with repeat.load(2) as processes:
    assert [process.poll() for process in processes] == [None, None]
  assert [process.returncode for process in processes] == [-signal.SIGKILL, -signal.SIGKILL]


@pytest.mark.parametrize("argv", [["--runs=0"], ["--load=-1"]])
def test_wrong_numbers(argv):
  with pytest.raises(SystemExit):
    repeat.main(argv)
