"""Measures the cost of a growing job: workers, ps, variables, tasks.

1. Workers 1, 2, 4, 8 and ps 1, 2, 4: the steps/s of all workers, the processor time per step, and
   the memory. The classic script and tf1ps are started again for each size, and interleaved. If all
   tasks share a machine, the processor time per step says more than the steps/s.
2. Variables 10 to 1,000: the same values with one worker, and the seconds to build the graph.
3. Tasks 4 to 64: the seconds of a session's creation and first run.

A row also has a key "scale", which says what sizes it was measured with. `scaling_model.py` fits a
model to these rows.
"""
from __future__ import annotations

import json
import subprocess
import sys
from typing import Iterator, List

from benchmarks import comparisons, interleaving, links, rows, systems

_LIMIT = 600.0  # seconds of one process
_WORKERS, _PS, _VARIABLES, _TASKS = (1, 2, 4, 8), (1, 2, 4), (10, 50, 200, 1000), (4, 16, 32, 64)


def run(args) -> Iterator[List[dict]]:
  """Measures all sizes, or with --quick only the smallest sizes; yields the rows of each size."""
  sizes = [(workers, 1) for workers in _WORKERS] + [(2, ps) for ps in _PS[1:]]
  variables, tasks = _VARIABLES, _TASKS
  if args.quick:
    sizes, variables, tasks = [(2, 1)], (10,), (4,)
  pace = interleaving.pace_of(args)
  for workers, ps in sizes:
    yield _compare("L" if ps > 1 else "S", pace, workers, ps)
    if ps == 1 and workers == 2 and not args.quick:  # more ps are compared with this size
      yield _compare("L", pace, workers, ps)
  for count in variables:
    yield _compare("V%d" % count, pace, 1, 1)
    yield _graphs("V%d" % count, count, args)
  yield [dict(rows.row("session", "loopback", "a session's creation and first run", "", []),
              scale={"tasks": count}, seconds=_measured("sessions", str(count)))
         for count in tasks]


def _compare(model, pace, workers, ps):
  lines = [comparisons.CLASSIC._replace(workers=workers, ps=ps),
           comparisons.DEFAULTS._replace(workers=workers, ps=ps)]
  measured, lost = interleaving.compare(model, links.LOOPBACK, lines, pace)
  base = measured.get(comparisons.CLASSIC.name)
  made = []
  for line in lines:
    if line.name in lost:
      made.append(comparisons.lost_row(
        model, links.LOOPBACK, line, lost[line.name], line is lines[0]))
      continue
    made.append(dict(
      comparisons.row(model, links.LOOPBACK, line, measured[line.name], base),
      scale={"workers": workers, "ps": ps, "variables": len(_names(model))},
      ps_peak_mb=measured[line.name].ps_peak_mb))
  return made


def _names(model):
  from benchmarks import models

  return models.initial_values(models.get(model))


def _graphs(model, count, args):
  """Returns the rows with the seconds that a graph takes to build."""
  made = []
  for kind in ("classic", "tf1ps"):
    found = [_measured("graph", model, kind) for _ in range(min(3, args.rounds))]
    made.append(dict(
      rows.row(model, "none", kind + ", building the graph", "", []),
      scale={"variables": count}, operations=found[0]["operations"],
      seconds=rows.summary([one["seconds"] for one in found])))
  return made


def _measured(*what):
  done = subprocess.run(
    [sys.executable, "-m", "benchmarks.setup_times", *what], cwd=systems.ROOT,
    env=systems.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    universal_newlines=True, timeout=_LIMIT)
  if done.returncode:
    raise RuntimeError("benchmarks.setup_times %s: %s" % (" ".join(what), done.stderr[-2000:]))
  return json.loads(done.stdout.splitlines()[-1])
