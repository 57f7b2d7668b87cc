"""Faults of the small files that decide, as data: the cells, and what each of them promises.

A cell is one fault of one file, at one moment at which the task that reads it is started again.
metadata_job.py makes it happen, and `python -m tests.survival.matrix_page` writes its table into
docs/survival.md.
"""
from __future__ import annotations

import itertools
from typing import List, NamedTuple, Optional

# By the names in the page. The task that is started again is the chief, or the evaluator for the
# last two.
FILES = {
  "state": "`checkpoint`", "run": "`tf1ps-run.json`", "examples": "`*.examples.json`",
  "epochs": "`*.epochs.json`", "ranges": "`*.ranges.json`", "stop": "`tf1ps-stop.json`",
  "best": "`best/checkpoint`", "memory": "`tf1ps-evaluator.json`"}
FAULTS = {
  "deleted": "deleted", "empty": "empty", "cut": "halved", "garbage": "binary",
  "other": "wrong", "older": "older", "foreign": "unreadable"}
MOMENTS = {"nobody": "nobody", "members": "workers", "others": "another"}  # who lives


class Cell(NamedTuple):
  """One cell."""
  file: str
  fault: str
  moment: str

  @property
  def name(self) -> str:
    return "-".join(self)


ALL = [Cell(*each) for each in itertools.product(FILES, FAULTS, MOMENTS)]


def meaningless(cell: Cell) -> Optional[str]:
  """Says why a cell means nothing; None if it has a meaning."""
  if cell.fault == "older" and cell.file in ("examples", "epochs", "ranges"):
    return "each checkpoint has a file of its own"
  if cell.moment == "members" and cell.file not in ("state", "run"):
    return "it is read where the state is restored, and by nobody else"
  if cell.moment == "others" and cell.file != "run":
    return "another job is found by its run's file"
  return None


CELLS = [cell for cell in ALL if meaningless(cell) is None]

GOES_ON = "on"  # with all that the last checkpoint has, or the servers
SAYS = "said"  # the same, and a line names the file
BACK = "back"  # the same, with the file of the checkpoint before: the job trains longer
OLDER = "older"  # it begins with the checkpoint that the file names; a warning names the newer one
REFUSED = "refused"  # an error names the file, or the other job; no file is changed


class Expectation(NamedTuple):
  """What the cells of one class promise; the first class that fits a cell counts.

  The parts of a cell are words of FILES, FAULTS and MOMENTS, or "*".
  """
  file: str
  fault: str
  moment: str
  outcome: str


EXPECTATIONS = (
  # Somebody has taken it away, as no crash does: which checkpoint counts is for the user to say.
  Expectation("state", "deleted", "*", REFUSED),
  Expectation("state", "older", "nobody", OLDER),
  Expectation("state", "older", "members", GOES_ON),  # the ps have newer values
  Expectation("state", "*", "*", SAYS),
  Expectation("run", "*", "others", REFUSED),
  Expectation("run", "foreign", "*", REFUSED),
  Expectation("run", "older", "nobody", GOES_ON),
  Expectation("run", "*", "*", SAYS),
  Expectation("examples", "*", "*", BACK),
  Expectation("epochs", "*", "*", BACK),
  Expectation("ranges", "*", "*", BACK),
  Expectation("stop", "*", "*", GOES_ON),
  Expectation("best", "older", "*", SAYS),
  Expectation("best", "*", "*", GOES_ON),
  Expectation("memory", "*", "*", SAYS),
)


def expectation(cell: Cell) -> str:
  """Returns what a cell promises."""
  return next(each.outcome for each in EXPECTATIONS
              if all(part in ("*", own) for part, own in zip(each, cell)))


def table() -> List[str]:
  """The lines of the page's table, one for each file and moment."""
  lines = ["|%s|" % "|".join(["file", "lives", *FAULTS.values()]), "|" + "-|" * (2 + len(FAULTS))]
  for file, moment in itertools.product(FILES, MOMENTS):
    cells = [Cell(file, fault, moment) for fault in FAULTS]
    if any(meaningless(cell) is None for cell in cells):
      lines.append("|%s|" % "|".join([FILES[file], MOMENTS[moment], *(
        "–" if meaningless(cell) else expectation(cell) for cell in cells)]))
  return lines
