"""Makes the tables of docs/survival.md: `python -m tests.survival.matrix_page [ROWS.jsonl]`.

matrix_results.jsonl holds a row for each cell and TensorFlow. `make matrix` writes rows, which
replace those of the same cells there. A comment in the page, such as `<!-- cells: killed -->`,
names the view and its fault; the text from there to `<!-- end -->` is made.
"""
from __future__ import annotations

import json
import os
import re
import sys
from typing import Dict, List, Sequence

from tests.survival import matrix

_FOLDER = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(_FOLDER, "matrix_results.jsonl")
PAGE = os.path.join(os.path.dirname(os.path.dirname(_FOLDER)), "docs", "survival.md")
_BLOCK = re.compile(r"<!-- (cells|defects|conditions):? ?(\w*) -->\n.*?<!-- end -->", re.DOTALL)

_ROLES = {"ps": "ps", "chief": "chief", "worker": "worker", "evaluator": "evaluator"}
_PHASES = {"start": "before its start", "initialising": "while initialising",
           "training": "while training", "saving": "while the chief saves", "end": "at the end",
           "evaluating": "while the others evaluate"}
_SCHEMES = {"async": "async", "sync": "sync", "spare": "sync, spare worker",
            "all_reduce": "all-reduce"}
_FAULTS = {"killed": "(killed)", "stopped": "(stopped)", "cut": "(cut off)", "full": "(disk full)"}


def row(cell, seen, found: Sequence[str], pace, tensorflow: str, date: str) -> dict:
  """The row of a cell's run."""
  return dict(
    cell._asdict(), tensorflow=tensorflow, pace=pace.name, date=date, outcome=seen.outcome,
    seconds=round(seen.effect, 1), lost_steps=seen.lost_steps,
    lost_examples=seen.lost_steps * matrix.BATCH * matrix.GRADIENTS[cell.scheme],
    codes=seen.codes, problems=list(found), cell_seconds=round(seen.seconds, 1))


def add(path: str, one: dict) -> None:
  """Appends a row to a file."""
  with open(path, "a") as file:
    file.write(json.dumps(one) + "\n")


def read(path: str) -> List[dict]:
  """Reads the rows of a file."""
  with open(path) as file:
    return [json.loads(line) for line in file if line.strip()]


def key(one: dict) -> tuple:
  """What a newer row of the same replaces: the cell and the TensorFlow."""
  return (*cell_of(one), one["tensorflow"])


def cell_of(one: dict) -> matrix.Cell:
  return matrix.Cell(*(one[name] for name in matrix.Cell._fields))


def merged(old: Sequence[dict], new: Sequence[dict]) -> List[dict]:
  """Returns the rows, the newest of each cell, in the order of the cells."""
  latest = {key(one): one for one in [*old, *new]}
  found = [latest[each] for each in latest if matrix.meaningless(matrix.Cell(*each[:4])) is None]
  return sorted(found, key=lambda one: (matrix.ALL.index(cell_of(one)), one["tensorflow"]))


def with_tables(text: str, found: Sequence[dict]) -> str:
  """Returns the page with the tables that these rows make."""
  def block(match):
    view, word = match.groups()
    lines = {"cells": _cells, "defects": _defects, "conditions": _conditions}[view](found, word)
    head = match.group(0).partition("\n")[0]
    return "%s\n\n%s\n\n<!-- end -->" % (head, "\n".join(lines))

  return _BLOCK.sub(block, text)


def _cells(found, fault):
  """A line for each role and phase, a column for each scheme."""
  rows: Dict[matrix.Cell, List[dict]] = {}
  for one in found:
    rows.setdefault(cell_of(one), []).append(one)
  lines = _head("task", "phase", *_SCHEMES.values())
  for role in matrix.ROLES:
    for phase in matrix.PHASES:
      cells = [matrix.Cell(role, phase, scheme, fault) for scheme in matrix.SCHEMES]
      reasons = {matrix.meaningless(cell) for cell in cells}
      if None in reasons or len(reasons) > 1:
        lines.append(_line(_ROLES[role], _PHASES[phase],
                           *(_text(cell, rows.get(cell, [])) for cell in cells)))
      else:
        lines.append(_line(_ROLES[role], _PHASES[phase], "– " + reasons.pop(), "–", "–", "–"))
  return lines


def _text(cell, rows):
  """What became of a cell; TensorFlows that agree are told once."""
  reason = matrix.meaningless(cell)
  if reason is not None:
    return "– " + reason
  if not rows:
    return "not run"
  newest = max(rows, key=lambda one: _version(one["tensorflow"]))
  texts = [_outcome(newest)]
  for one in rows:
    if one["outcome"] != newest["outcome"]:
      texts.append("on %s: %s" % (one["tensorflow"], _outcome(one)))
  return "; ".join(texts) + (" †" if matrix.known_failing(cell) else "")


def _outcome(one):
  lost = ", %d steps lost" % one["lost_steps"] if one["lost_steps"] else ""
  return "%s, %.1f s%s" % (one["outcome"], one["seconds"], lost)


def _defects(found, unused_word):
  """A line for each reason, with the cells that it explains."""
  cells: Dict[str, List[str]] = {}
  for pattern, reason in matrix.KNOWN_FAILING.items():
    role, phase, scheme, fault = pattern
    words = [_ROLES[role], _PHASES.get(phase, "in each phase"), _SCHEMES.get(scheme, ""),
             _FAULTS[fault]]
    cells.setdefault(reason, []).append(" ".join(filter(None, words)))
  return ["- %s: %s." % ("; ".join(names), reason) for reason, names in cells.items()] or [
    "None is known."]


def _conditions(found, unused_word):
  lines = []
  for version in sorted({one["tensorflow"] for one in found}, key=_version, reverse=True):
    rows = [one for one in found if one["tensorflow"] == version]
    dates = sorted({one["date"] for one in rows})
    for pace in sorted({one["pace"] for one in rows}):
      some = [one for one in rows if one["pace"] == pace]
      value = matrix.PACES[pace]
      lines.append(
        "- TensorFlow %s: %d of %d cells, %d of them as promised, in %.0f minutes of cells, %s; "
        "`--heartbeat_timeout=%g`, and a stop of %g s." % (
          version, len(some), len(matrix.CELLS), sum(not one["problems"] for one in some),
          sum(one["cell_seconds"] for one in some) / 60,
          dates[0] if len(dates) == 1 else "%s to %s" % (dates[0], dates[-1]),
          value.heartbeat_timeout, value.stop))
  return lines


def _version(text):
  return [int(part) for part in re.findall(r"\d+", text)]


def _head(*cells):
  return [_line(*cells), "|" + "---|" * len(cells)]


def _line(*cells):
  return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str]) -> None:
  """Adds the rows of these files to the results, and writes the page."""
  found = read(RESULTS) if os.path.exists(RESULTS) else []
  for path in arguments:
    found = merged(found, read(path))
  with open(PAGE, encoding="utf-8") as file:
    text = with_tables(file.read(), found)
  with open(RESULTS, "w") as file:
    for one in found:
      file.write(json.dumps(one) + "\n")
  with open(PAGE, "w", encoding="utf-8") as file:
    file.write(text)


if __name__ == "__main__":
  main(sys.argv[1:])
