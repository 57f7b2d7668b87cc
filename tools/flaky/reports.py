"""Reads the reports that pytest writes with --junitxml: which tests have failed, and how."""
from __future__ import annotations

import pathlib
from typing import Dict, List, NamedTuple
from xml.etree import ElementTree

LINES = 10  # of each failure, where they are shown

class Report(NamedTuple):
  """The tests of a run by their results; a name is such as "tests.state.queues_test::test_a"."""

  passed: List[str]
  skipped: List[str]
  failures: Dict[str, List[str]]  # the lines of each failure


def read(path: pathlib.Path) -> Report:
  """Returns the report in a file."""
  passed, skipped, failures = [], [], {}
  for case in ElementTree.parse(str(path)).iter("testcase"):
    name = "%s::%s" % (case.get("classname"), case.get("name"))
    failure = next((case.find(kind) for kind in ("failure", "error")
                    if case.find(kind) is not None), None)
    if failure is not None:
      failures[name] = _lines(failure)
    elif case.find("skipped") is not None:
      skipped.append(name)
    else:
      passed.append(name)
  return Report(passed, skipped, failures)


def first_lines(failures: Dict[str, List[str]]) -> str:
  """Returns the name of each test that failed, and below it the first lines of its failure."""
  return "".join("%s\n%s" % (test, "".join("  %s\n" % line for line in lines[:LINES]))
                 for test, lines in sorted(failures.items()))


def _lines(failure: ElementTree.Element) -> List[str]:
  """Returns the lines of a failure that say what happened, without the test's source."""
  lines = (failure.text or "").splitlines()
  said = [line[1:].strip() for line in lines if line.startswith("E ")]
  return said or (failure.get("message") or "").splitlines() or ["no message"]
