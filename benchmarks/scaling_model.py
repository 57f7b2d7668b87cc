"""A model on paper of large jobs, fitted to the rows of `scaling`: what would be met first?

    python -m benchmarks.scaling_model ROWS.jsonl [--workers 100,1000] [--ps 1,8] [--cores 8]
      [--gbit 10]

Each quantity is a straight line, a + b x, by least squares of the relative errors, so that the
smallest sizes count as much as the largest:

    p(v)  ms of ps processors a step, over the variables v that a worker updates
    g(v)  s to build a worker's graph, over the variables
    q(w)  ms of ps processors per step of S, over the workers w: what each further worker adds to it
    m(w)  MB of the ps, over the workers
    s(t)  s until a session has made its first run, over the tasks t that it sees

One worker alone makes r steps per second, and each sends B bytes, half of them each way. For w
workers on machines of their own and n ps of c cores each and d bits per second, which share the
load evenly,

    asked for      w r              steps per second
    processors     n c 1000 / p_n   the most that the ps can apply; p_n = n a + b v: what a step
                                    costs without any variable, it costs on each ps
    wire           n d / 8 / (B/2)  the most that can travel
    w*             the smaller of the two, divided by r: from so many workers on, more bring nothing

The model knows no stragglers, no contention for a variable's lock and no shared switch: it says
what is met first, not what a job will reach. All figures are those of the machine that measured.
"""
from __future__ import annotations

import argparse
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from benchmarks import rows as rows_lib

_MISSING = "%s: measure all of it with `python -m benchmarks scaling --json ROWS.jsonl`"


class Line(NamedTuple):
  """a + b x."""

  a: float
  b: float

  def at(self, x: float) -> float:
    """Its value; 0 where it would be below."""
    return max(0.0, self.a + self.b * x)

  def __str__(self):
    return "%.3g + %.3g x" % (self.a, self.b)


def fit(points: Sequence[Tuple[float, float]]) -> Line:
  """The line through some points of positive y, by least squares of the relative errors.

  A level one, through their mean, where there is a single x.
  """
  xs, ys = np.array(points, float).T
  if len(set(xs)) < 2:
    return Line(float(ys.mean()), 0.0)
  b, a = np.polyfit(xs, ys, 1, w=1 / ys)
  return Line(float(a), float(b))


class Fitted(NamedTuple):
  """What was fitted for one system."""

  ps_ms: Line  # p(v)
  graph_s: Line  # g(v)
  ps_ms_of_workers: Line  # q(w)
  ps_mb: Line  # m(w)
  rates: Dict[int, float]  # by variables: r
  bytes: Dict[int, float]  # by variables: B


def fit_system(rows: Sequence[dict], system: str) -> Fitted:
  """Fits the rows of one system.

  Args:
    rows: those of `scaling`.
    system: its name in them, "classic" or "tf1ps".

  Raises:
    ValueError: rows that the fit needs are missing.
  """
  own = [row for row in rows if row["system"] == system and "scale" in row]
  single = [row for row in own if row["model"].startswith("V")]
  workers = [row for row in own if row["model"] == "S" and row["scale"]["ps"] == 1]
  graphs = [row for row in rows if row["system"] == system + ", building the graph"]
  if not (single and workers and graphs):
    raise ValueError(_MISSING % (
      "there are no rows of %s in which variables, workers and graphs vary" % system))

  def variables(row):
    return row["scale"]["variables"]

  return Fitted(
    fit([(variables(row), row["cpu_ms_per_step"]["ps"]) for row in single]),
    fit([(variables(row), row["seconds"]["median"]) for row in graphs]),
    fit([(row["scale"]["workers"], row["cpu_ms_per_step"]["ps"]) for row in workers]),
    fit([(row["scale"]["workers"], row["ps_peak_mb"]) for row in workers]),
    {variables(row): row["steps_per_second"]["median"] for row in single},
    {variables(row): row["bytes_per_step"] for row in single})


def fit_sessions(rows: Sequence[dict]) -> Dict[str, Line]:
  """s(t), filtered and not; raises ValueError where there are no rows of it."""
  found = [row for row in rows if row["model"] == "session"]
  if not found:
    raise ValueError(_MISSING % "there are no rows of sessions")
  return {kind: fit([(row["scale"]["tasks"], row["seconds"][kind]) for row in found])
          for kind in ("filtered", "unfiltered")}


def limits(fitted: Fitted, variables: int, workers: int, ps: int, cores: int,
           gbit: float) -> Dict[str, float]:
  """What is asked for, and what the ps can do, in steps per second; and from where on it is less.

  Args:
    fitted: see `fit_system`.
    variables: of the model, one that was measured.
    workers: how many.
    ps: how many.
    cores: of each ps.
    gbit: of each ps's link, each way.
  """
  rate = fitted.rates[variables]
  fixed, each = fitted.ps_ms
  processors = ps * cores * 1000.0 / max(1e-9, ps * max(0.0, fixed) + each * variables)
  wire = ps * gbit * 1e9 / 8 / (fitted.bytes[variables] / 2)
  return {"asked": workers * rate, "processors": processors, "wire": wire,
          "workers": min(processors, wire) / rate}


def report(rows: Sequence[dict], workers: Sequence[int], ps: Sequence[int], cores: int,
           gbit: float) -> List[str]:
  """The fit and what follows from it, as lines of Markdown."""
  said = []
  sessions = fit_sessions(rows)
  for system in ("classic", "tf1ps"):
    fitted = fit_system(rows, system)
    said += ["", "**%s**: p = %s ms, g = %s s, q = %s ms, m = %s MB" % (
      system, fitted.ps_ms, fitted.graph_s, fitted.ps_ms_of_workers, fitted.ps_mb), "",
      "| variables | workers | ps of %d cores, %g Gbit/s | asked for, steps/s | processors allow "
      "| wire allows | met first | full from workers | memory of a ps, MB |" % (cores, gbit),
      "|" + "---|" * 9]
    for variables in sorted(fitted.rates):
      for count in workers:
        for servers in ps:
          found = limits(fitted, variables, count, servers, cores, gbit)
          first = min(("asked", "processors", "wire"), key=found.get)
          said.append("| %d | %d | %d | %.3g | %.3g | %.3g | %s | %.0f | %.0f |" % (
            variables, count, servers, found["asked"], found["processors"], found["wire"],
            {"asked": "none"}.get(first, first), found["workers"], fitted.ps_mb.at(count)))
  said += ["", "A session's first run, over the tasks that it sees: %s" % "; ".join(
    "%s %s s" % item for item in sessions.items())]
  said += ["", "| tasks | with filters, s | without, s |", "|---|---|---|"]
  said += ["| %d | %.3g | %.3g |" % (count, sessions["filtered"].at(count),
                                     sessions["unfiltered"].at(count)) for count in workers]
  return said


def main(arguments=None) -> None:
  """Prints the report."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("rows", help="the file that `python -m benchmarks scaling --json` wrote")
  parser.add_argument("--workers", default="100,1000")
  parser.add_argument("--ps", default="1,8")
  parser.add_argument("--cores", type=int, default=8, help="of each ps")
  parser.add_argument("--gbit", type=float, default=10.0, help="of each ps's link")
  args = parser.parse_args(arguments)
  workers, ps = [[int(one) for one in text.split(",")] for text in (args.workers, args.ps)]
  try:
    lines = report(rows_lib.read(args.rows), workers, ps, args.cores, args.gbit)
  except (ValueError, OSError) as error:
    parser.error(str(error))
  print("\n".join(lines))


if __name__ == "__main__":
  main()
