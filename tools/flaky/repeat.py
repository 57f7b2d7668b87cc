"""Runs tests several times beside a load, to find those that fail only at times.

    make steady RUNS=5 ARGS=tests/state

Each run has another order and another number of processes. A busy process for each core runs
beside them. After each run stand the first lines of its failures, and at the end a table with a row
for each test that has failed: its name, in how many runs, and the first line of each failure. The
exit code is 0 if no test has failed.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import Dict, Iterator, List

from tools.flaky import reports

BUSY = "while True: pass"


@contextlib.contextmanager
def load(count: int) -> Iterator[List[subprocess.Popen]]:
  """Has busy processes run beside the body."""
  processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
  try:
    yield processes
  finally:
    for process in processes:
      process.kill()
      process.wait()


def run_once(number: int, seed: int, arguments: List[str], folder: pathlib.Path) -> reports.Report:
  """Runs the tests with 2 to 6 processes; returns what became of them."""
  report = folder / ("%d.xml" % number)
  processes = 2 + (seed + number) % 5
  began = time.monotonic()
  subprocess.call(
    [sys.executable, "-m", "pytest", "--quiet", "--dist=worksteal", "-n", str(processes),
     "--random-order", "--random-order-seed=%d" % (seed + number), "-o",
     "cache_dir=%s" % (folder / "cache"), "--junitxml=%s" % report, *arguments],
    stdout=subprocess.DEVNULL)
  if not report.exists():
    sys.exit("run %d has no report: pytest %s" % (number, " ".join(arguments)))
  found = reports.read(report)
  print("run %d: %d processes, seed %d: %d passed, %d failed, %.0f s" % (
    number, processes, seed + number, len(found.passed), len(found.failures),
    time.monotonic() - began), flush=True)
  print(reports.first_lines(found.failures), end="", flush=True)
  return found


def table(found: List[reports.Report]) -> List[str]:
  """Returns the lines of the table."""
  failures: Dict[str, List[str]] = {}
  for report in found:
    for test, lines in report.failures.items():
      failures.setdefault(test, []).append(lines[0])
  rows = ["%s  %d of %d runs  %s" % (test, len(lines), len(found), " | ".join(sorted(set(lines))))
          for test, lines in sorted(failures.items())]
  tests = len(found[0].passed) + len(found[0].failures)
  return rows + ["%d of %d tests failed in %d runs" % (len(rows), tests, len(found))]


def main(argv: List[str]) -> int:
  """Returns the exit code."""
  parser = argparse.ArgumentParser(prog="make steady", allow_abbrev=False)
  parser.add_argument("--runs", type=int, default=5)
  parser.add_argument("--load", type=int, default=os.cpu_count(), help="busy processes beside them")
  parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10000))
  options, arguments = parser.parse_known_args(argv)
  if options.runs < 1 or options.load < 0 or options.seed < 0:
    parser.error("--runs must be at least 1, --load and --seed at least 0")
  with tempfile.TemporaryDirectory() as folder, load(options.load):
    found = [run_once(number, options.seed, arguments, pathlib.Path(folder))
             for number in range(1, options.runs + 1)]
  lines = table(found)
  print("\n".join(lines))
  return 1 if len(lines) > 1 else 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
