from __future__ import annotations

import sys

from tools.flaky import second_try

MAKEFILE = """
TEST_PROCESSES = %d
test:
	@%s -m pytest -q --dist worksteal -n $(TEST_PROCESSES) planted_test.py $(ARGS)
"""
PLANTED = """
import pathlib

import pytest

def test_passes():
  pass

def test_fails_once(request):
  before = pathlib.Path(request.node.name)
  if not before.exists():
    before.write_text("")
    assert 0.8 < 0.7916

def test_is_left_out():
  pytest.skip("needs a thing")

@pytest.mark.parametrize("number", range(%d))
def test_fails(number):
  assert number == -1, "\\n".join(str(line) for line in range(20))
"""


def try_twice(folder, planted, processes=0):
  """Runs a file of tests; returns the exit code and what stands in the three files."""
  (folder / "Makefile").write_text(MAKEFILE % (processes, sys.executable))
  (folder / "planted_test.py").write_text(planted)
  (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\n")
  code = second_try.main("all", str(folder), "make", "--no-print-directory", "-C", str(folder),
                         "test")
  return code, [path.read_text() if path.exists() else None for path in (
    folder / ("all." + kind) for kind in ("unsteady", "failures", "closing"))]


def test_what_fails_once_is_named_and_is_no_failure(tmp_path, capfd):
  assert try_twice(tmp_path, PLANTED % 0, processes=2) == (0, [
    "unsteady: planted_test::test_fails_once: assert 0.8 < 0.7916\n", "",
    "all: 2 passed, 0 failed, 2 skipped\n"])  # of no numbers pytest makes a skipped test, too
  output = capfd.readouterr().out
  assert "== all: once more, alone: planted_test::test_fails_once\n" in output
  assert "\n1 passed, " in output, "the others have passed, and have no second try"


def test_what_fails_twice_is_a_failure(tmp_path):
  code, (unsteady, failures, closing) = try_twice(tmp_path, PLANTED % 1)
  assert code == 1 and unsteady.startswith("unsteady: planted_test::test_fails_once: ")
  assert failures.splitlines() == ["planted_test::test_fails[0]", "  AssertionError: 0"] + [
    "  %d" % line for line in range(1, 10)]
  assert closing == "all: 2 passed, 1 failed, 1 skipped\n"


def test_many_failures_have_no_second_try(tmp_path, capfd):
  code, (unsteady, failures, closing) = try_twice(tmp_path, PLANTED % 5)
  assert code == 1 and "once more, alone" not in capfd.readouterr().out
  assert unsteady == "" and failures.count("planted_test::") == 6
  assert closing == "all: 1 passed, 6 failed, 1 skipped\n"


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path):
  code, (_, failures, _) = try_twice(tmp_path, "import nothing_of_this_name")
  assert code == 1 and "No module named 'nothing_of_this_name'" in failures


def test_a_run_without_a_report_is_a_failure(tmp_path):
  assert second_try.main("all", str(tmp_path), "false") == 1
  assert (tmp_path / "all.failures").read_text() == "false failed, and no test did\n"
  assert (tmp_path / "all.unsteady").read_text() == "" and not (tmp_path / "all.closing").exists()
