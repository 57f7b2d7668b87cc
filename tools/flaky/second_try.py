"""Runs tests by make, and once more, alone, those that failed.

`python -m tools.flaky.second_try NAME FOLDER make TARGET` writes into FOLDER, for the end of
.ci/run:

- NAME.unsteady: a line for each test that has failed once and then passed alone;
- NAME.failures: the names of the tests that failed, and the first lines of each failure;
- NAME.closing: how many tests have passed and failed in the end.

It ends with 0 if all tests have passed in the end. A test that fails twice is a failure. More than
five failures are a break and no noise: they have no second try. Nor has a run without a report.
"""
from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import List, NamedTuple, Optional

from tools.flaky import reports

MOST_UNSTEADY = 5


class _Run(NamedTuple):
  is_green: bool
  report: Optional[reports.Report]


def _run(command: List[str], path: pathlib.Path, arguments: str) -> _Run:
  code = subprocess.call(command + ["ARGS=--junitxml=%s %s" % (path, arguments)])
  return _Run(code == 0, reports.read(path) if path.exists() else None)


def main(name: str, folder_name: str, *command: str) -> int:
  """Returns the exit code."""
  folder, make = pathlib.Path(folder_name), list(command)
  cache = "-o cache_dir=%s" % (folder / (name + ".cache"))
  first = last = _run(make, folder / (name + ".xml"), cache)
  failed = first.report.failures if first.report else {}
  if not first.is_green and 0 < len(failed) <= MOST_UNSTEADY:
    print("== %s: once more, alone: %s" % (name, ", ".join(sorted(failed))), flush=True)
    last = _run(make + ["TEST_PROCESSES=0", "JOB_PROCESSES=0"], folder / (name + ".again.xml"),
                cache + " --last-failed --last-failed-no-failures=none")
  failures = last.report.failures if last.report else {}
  unsteady = {test: lines for test, lines in failed.items() if last is not first
              and last.report and test not in failures}
  if not (last.is_green or failures):
    failures = {"%s failed, and no test did" % " ".join(command): []}
  (folder / (name + ".unsteady")).write_text("".join(
    "unsteady: %s: %s\n" % (test, lines[0]) for test, lines in sorted(unsteady.items())))
  (folder / (name + ".failures")).write_text(reports.first_lines(failures))
  if first.report:
    (folder / (name + ".closing")).write_text("%s: %d passed, %d failed, %d skipped\n" % (
      name, len(first.report.passed) + len(unsteady), len(failures), len(first.report.skipped)))
  return 0 if last.is_green else 1


if __name__ == "__main__":
  sys.exit(main(*sys.argv[1:]))
