"""Makes the tables of the documents from rows: `python -m benchmarks.page [ROWS.jsonl]`.

benchmarks/results.jsonl has the rows. Rows that a run has written by `--json` replace the rows of
the same tables there. A comment in a page, such as `<!-- systems: latency_S -->`, names the view of
a table and the benchmark; the text from the comment to `<!-- end -->` is generated.
"""
from __future__ import annotations

import os
import re
import sys
from typing import Dict, List, Sequence

from benchmarks import rows

_FOLDER = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(_FOLDER, "results.jsonl")
PAGE = os.path.join(os.path.dirname(_FOLDER), "docs", "benchmarks.md")
MARK = " †"  # another algorithm
_BLOCK = re.compile(r"<!-- (\w+):((?: \w+)*) -->\n.*?<!-- end -->", re.DOTALL)


def merged(old: Sequence[dict], new: Sequence[dict]) -> List[dict]:
  """Returns the old rows, in which each new table replaces the old table of the same name."""
  replaced = {_table_of(one) for one in new}
  return [one for one in old if _table_of(one) not in replaced] + list(new)


def with_tables(text: str, found: Sequence[dict]) -> str:
  """Returns a page's text with the tables of these rows."""
  def block(match):
    view, words = match.group(1), match.group(2).split()
    lines = _VIEWS[view](found, words)
    return "<!-- %s:%s -->\n\n%s\n\n<!-- end -->" % (view, match.group(2), "\n".join(lines))

  return _BLOCK.sub(block, text)


def _systems(found, words):
  """One table with a line for each system: BENCHMARK, or BENCHMARK TABLE."""
  table, = _tables(found, words)
  lines = _head("system", "steps/s (min–max)", "ratio", "CPU ms per step, worker+ps",
                "KB per step", "loss")
  for one in table:
    cpu, size = one["cpu_ms_per_step"], one["bytes_per_step"]
    lines.append(_line(
      _name(one, found), _range(one["steps_per_second"]), rows.short(one["ratio_to_classic"]),
      cpu and "%s+%s" % (rows.short(cpu["worker"]), rows.short(cpu["ps"])),
      None if size is None else "%.0f" % (size / 1000),
      None if one["eval_loss"] is None else "%.5g" % one["eval_loss"]))
  return lines


def _links(found, words):
  """Several tables of the same systems side by side: BENCHMARK, and TABLEs."""
  tables = _tables(found, words)
  firsts = [table[0] for table in tables]
  differ = [key for key in ("model", "link") if len({one[key] for one in firsts}) > 1]
  heads = [", ".join(one[key] for key in differ) for one in firsts]
  lines = _head("system", *(cell for head in heads for cell in ("%s: steps/s" % head, "ratio")))
  for together in zip(*tables):
    cells = []
    for one in together:
      cells += [_range(one["steps_per_second"]), rows.short(one["ratio_to_classic"])]
    lines.append(_line(_name(together[0], found), *cells))
  return lines


def _sizes(found, words):
  """A line for each model of VNxWIDTH, with the steps/s of each system: BENCHMARK."""
  tables = _tables(found, words)
  lines = _head("each variable", *(one["system"] for one in tables[0]), "ratio")
  for table in tables:
    width = int(table[0]["model"].partition("x")[2])
    lines.append(_line("%.0f KB" % (4 * width * width / 1000),
                       *(_range(one["steps_per_second"]) for one in table),
                       rows.short(table[-1]["ratio_to_classic"])))
  return lines


def _seconds(found, words):
  """The seconds of each system: BENCHMARK."""
  table, = _tables(found, words)
  faster = "times_as_fast" in table[0]
  lines = _head("system", "seconds (min–max)", *(
    ("steps", "times as fast") if faster else ("to classic",)))
  for one in table:
    rest = (("%.0f" % one["steps"]["median"], rows.short(one["times_as_fast"])) if faster
            else (rows.short(one["seconds_to_classic"]),))
    lines.append(_line(one["system"], _range(one["seconds"]), *rest))
  return lines


def _headlines(found, words):
  """The ratios of each table with tf1ps' defaults and TensorFlow 1.15: BENCHMARKs."""
  lines = _head("benchmark", "classic, TensorFlow 1.15", "ParameterServerStrategy", "tf1ps",
                "fastest tf1ps that learns the same")
  for benchmark in words:
    for table in _tables(found, [benchmark]):
      by_name = {one["system"]: one["ratio_to_classic"] for one in table}
      ours = [one for one in table
              if one["system"].startswith("tf1ps") and one["ratio_to_classic"] is not None
              and not _is_another(one, found)]
      if ours and "tf1ps" in by_name and "classic, TensorFlow 1.15" in by_name:
        best = max(ours, key=lambda one: one["ratio_to_classic"])
        link = table[0]["link"]
        lines.append(_line(
          "[%s](#%s), %s%s" % (benchmark, benchmark.lower(), table[0]["model"],
                               "" if link == "loopback" else ", " + link),
          rows.short(by_name["classic, TensorFlow 1.15"]),
          rows.short(by_name.get("ParameterServerStrategy, 8 steps per call")),
          rows.short(by_name["tf1ps"]),
          "%s: %s" % (rows.short(best["ratio_to_classic"]),
                     best["system"].replace("tf1ps, ", "").replace("tf1ps", "by default"))))
  return lines


def _conditions(found, words):
  """When, where and how long each benchmark was measured."""
  versions: Dict[tuple, List[str]] = {}
  paces: Dict[tuple, Dict[str, List[str]]] = {}
  for row in found:
    run = row["run"]
    place = run["date"], run["machine"]
    known = versions.setdefault(place, [])
    known += [version for version in run["versions"] if version not in known]
    names = paces.setdefault(place, {}).setdefault(run["pace"], [])
    name = "`%s`" % run["benchmark"]
    if name not in names:
      names.append(name)
  return ["- %s, %s; %s: %s." % (*place, "; ".join(versions[place]), "; ".join(
    "%s (%s)" % (", ".join(names), pace) for pace, names in paces[place].items()))
          for place in sorted(paces)]


_VIEWS = {"systems": _systems, "links": _links, "sizes": _sizes, "seconds": _seconds,
          "headlines": _headlines, "conditions": _conditions}


def _table_of(one):
  return one["run"]["benchmark"], one["run"]["table"]


def _tables(found, words):
  """Returns all tables of a benchmark, or only the tables with these numbers, in order."""
  tables: Dict[int, List[dict]] = {}
  for one in found:
    benchmark, number = _table_of(one)
    if benchmark == words[0] and (len(words) == 1 or str(number) in words[1:]):
      tables.setdefault(number, []).append(one)
  if not tables:
    raise ValueError("no row of %s in %s" % (" ".join(words), RESULTS))
  return [tables[number] for number in sorted(tables)]


def _is_another(one, found):
  """Whether a system is another algorithm on this model; other tables' losses count if needed."""
  return any(not rows.is_headline(other) for other in found
             if other["model"] == one["model"]
             and other["system"].replace(rows.ANOTHER, "") == one["system"].replace(
               rows.ANOTHER, "")
             and (other is one or one["eval_loss"] is None))


def _name(one, found):
  lost = " (lost)" if "lost" in one else ""
  return one["system"].replace(rows.ANOTHER, "") + MARK * _is_another(one, found) + lost


def _range(value):
  if value is None:
    return None
  return "%s (%s–%s)" % tuple(rows.short(value[key]) for key in ("median", "min", "max"))


def _head(*cells):
  return [_line(*cells), "|" + "-|" * len(cells)]


def _line(*cells):
  return "|%s|" % "|".join("" if cell is None else str(cell) for cell in cells)


def main(arguments: Sequence[str]) -> None:
  """Adds the rows of these files to the results, and writes the page."""
  found = rows.read(RESULTS)
  for path in arguments:
    new = rows.read(path)
    if any("--quick" in one["run"].get("losses", "") for one in new):
      sys.exit("%s has rows of --quick, whose figures mean nothing" % path)
    found = merged(found, new)
  with open(PAGE, encoding="utf-8") as file:
    text = with_tables(file.read(), found)
  rows.write(RESULTS, found)
  with open(PAGE, "w", encoding="utf-8") as file:
    file.write(text)


if __name__ == "__main__":
  main(sys.argv[1:])
