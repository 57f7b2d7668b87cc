"""Makes the tables of docs/survival.md: `python -m tests.survival.matrix_page [ROWS.jsonl]`.

matrix_results.jsonl holds a row for each cell and TensorFlow, pairs_results.jsonl for each pair,
and worlds_results.jsonl for each cell of a world. `make matrix` and `make pairs` write rows, which
replace those of the same cells or pairs there. A comment in the page, such as
`<!-- cells: killed -->`, names the view and its fault; the text from there to `<!-- end -->` is
made. metadata.py and pairs.py have the views `files` and `pairs`.
"""
from __future__ import annotations

import json
import os
import re
import sys
from typing import Dict, List, Sequence

from tests.survival import matrix, metadata, pairs, worlds

_FOLDER = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(_FOLDER, "matrix_results.jsonl")
PAIRS = os.path.join(_FOLDER, "pairs_results.jsonl")
WORLD_RESULTS = os.path.join(_FOLDER, "worlds_results.jsonl")
PAGE = os.path.join(os.path.dirname(os.path.dirname(_FOLDER)), "docs", "survival.md")
_BLOCK = re.compile(
  r"<!-- (cells|defects|conditions|files|pairs|worlds):? ?(\w*) -->\n.*?<!-- end -->", re.DOTALL)

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
    lines = {"cells": _cells, "defects": _defects, "conditions": _conditions,
             "files": lambda *unused: metadata.table(), "worlds": _worlds,
             "pairs": lambda *unused: pairs.tables(read(PAIRS))}[view](found, word)
    head = match.group(0).partition("\n")[0]
    return "%s\n\n%s\n\n<!-- end -->" % (head, "\n".join(lines))

  return _BLOCK.sub(block, text)


def _cells(found, fault):
  """A line for each role and phase, a column for each scheme; then why some cells are missing."""
  rows: Dict[matrix.Cell, List[dict]] = {}
  for one in found:
    rows.setdefault(cell_of(one), []).append(one)
  lines, missing = _head("task", "phase", *_SCHEMES.values()), []
  for role in matrix.ROLES:
    for phase in matrix.PHASES:
      cells = [matrix.Cell(role, phase, scheme, fault) for scheme in matrix.SCHEMES]
      reasons = [reason for reason in map(matrix.meaningless, cells) if reason is not None]
      missing += reasons
      if len(reasons) < len(cells):
        lines.append(_line(_ROLES[role], _PHASES[phase],
                           *(_text(cell, rows.get(cell, [])) for cell in cells)))
  return lines + ["", "Not there: %s." % "; ".join(dict.fromkeys(missing))]


def _text(cell, rows):
  """What became of a cell; TensorFlows that agree are told once."""
  if cell.fault in matrix.FAULTS and matrix.meaningless(cell) is not None:
    return "–"
  if not rows:
    return "not run"
  newest = max(rows, key=lambda one: _version(one["tensorflow"]))
  texts = [_outcome(newest)]
  for one in rows:
    if one["outcome"] != newest["outcome"]:
      texts.append("on %s: %s" % (one["tensorflow"], _outcome(one)))
  return "; ".join(texts) + (" †" if matrix.known_failing(cell) else "")


def _outcome(one):
  word = "" if one["outcome"] == "goes on" else one["outcome"] + " "
  lost = " (%d lost)" % one["lost_steps"] if one["lost_steps"] else ""
  return "%s%.1f%s" % (word, one["seconds"], lost)


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


def _worlds(unused_found, unused_word):
  """A line for each cell, a column for each world; then how it was measured."""
  rows: Dict[worlds.Cell, List[dict]] = {}
  for one in read(WORLD_RESULTS):
    rows.setdefault(_world_cell_of(one), []).append(one)
  lines = ["- `%s`: %s." % (name, world.text) for name, world in worlds.WORLDS.items()]
  lines += ["", *_head("cell", *worlds.WORLDS)]
  for cell in dict.fromkeys(each.cell for each in worlds.CELLS):
    lines.append(_line("`%s`" % cell.name, *(
      _world_text(worlds.Cell(world, cell), rows) for world in worlds.WORLDS)))
  lines += ["", *("- *%s*: %s." % each for each in worlds.FAULTS.items()), ""]
  found = [one for some in rows.values() for one in some]
  for version in sorted({one["tensorflow"] for one in found}, key=_version, reverse=True):
    some = [one for one in found if one["tensorflow"] == version]
    there = [cell for cell in worlds.CELLS if worlds.meaningless(cell, version) is None]
    lines.append("- TensorFlow %s: %d of %d cells, %d of them as promised, in %.0f minutes." % (
      version, len(some), len(there), sum(not one["problems"] for one in some),
      sum(one["cell_seconds"] for one in some) / 60))
  return lines


def _world_cell_of(one):
  return worlds.Cell(one["world"], cell_of(one))


def _world_text(cell, rows):
  return _text(cell.cell, rows.get(cell, [])) if cell in worlds.CELLS else "–"


def _merged_worlds(old, new):
  """As `merged`, of the cells of worlds."""
  latest = {(_world_cell_of(one), one["tensorflow"]): one for one in [*old, *new]}
  return [latest[each] for each in sorted(
    (each for each in latest if each[0] in worlds.CELLS),
    key=lambda each: (worlds.CELLS.index(each[0]), each[1]))]


def _version(text):
  return [int(part) for part in re.findall(r"\d+", text)]


def _head(*cells):
  return [_line(*cells), "|" + "-|" * len(cells)]


def _line(*cells):
  return "|%s|" % "|".join(cells)


def main(arguments: Sequence[str]) -> None:
  """Adds the rows of these files to the results, and writes the page."""
  new = [one for path in arguments for one in read(path)]
  of_worlds = [one for one in new if "world" in one]
  _write(RESULTS, merged(read(RESULTS), [
    one for one in new if "role" in one and one not in of_worlds]))
  _write(PAIRS, pairs.merged(read(PAIRS) + [one for one in new if "moment" in one]))
  _write(WORLD_RESULTS, _merged_worlds(read(WORLD_RESULTS), of_worlds))
  with open(PAGE, encoding="utf-8") as file:
    text = with_tables(file.read(), read(RESULTS))
  with open(PAGE, "w", encoding="utf-8") as file:
    file.write(text)


def _write(path, rows):
  with open(path, "w") as file:
    for one in rows:
      file.write(json.dumps(one) + "\n")


if __name__ == "__main__":
  main(sys.argv[1:])
