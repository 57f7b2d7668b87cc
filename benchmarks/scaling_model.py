"""A model on paper of large jobs, fitted to the rows of `scaling`: what would be met first?

    python -m benchmarks.scaling_model ROWS.jsonl [--workers 100,1000] [--ps 1,8] [--cores 8]
      [--gbit 10]

Each quantity is a straight line, a + b x, by least squares of the relative errors, so that the
smallest sizes count as much as the largest:

    p(v)  ms of ps processors per step, over the variables v that a worker updates
    g(v)  s to build a worker's graph, over the variables
    q(w)  ms of ps processors per step of S, over the workers w: the cost of each further worker
    m(w)  MB of the ps, over the workers
    s(t)  s until a session has made its first run, over the tasks t that it sees

One worker alone makes r steps per second, and each step sends B bytes, half of them each way. Let
there be w workers, each on its own machine, and n ps with c cores and d bits per second each, which
share the load evenly. Then

    asked for      w r              steps per second
    processors     n c 1000 / p_n   the most steps that the ps can apply; p_n = n a + b v, because
                                    each ps pays the cost of a step without any variable
    wire           n d / 8 / (B/2)  the most steps whose bytes can travel
    w*             the smaller of these two limits, divided by r: with more workers than w*, the
                                    job is not faster

The model ignores stragglers, contention for a variable's lock and shared switches: it says which
limit a job meets first, not which rate a job will reach. All figures are from the machine that
measured the rows.
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
    """Returns the line's value at x, or 0 if the value would be below 0."""
    return max(0.0, self.a + self.b * x)

  def __str__(self):
    return "%.3g + %.3g x" % (self.a, self.b)


def fit(points: Sequence[Tuple[float, float]]) -> Line:
  """Returns the line through points of positive y, by least squares of the relative errors.

  If all points have the same x, the line is level and goes through their mean.
  """
  xs, ys = np.array(points, float).T
  if len(set(xs)) < 2:
    return Line(float(ys.mean()), 0.0)
  b, a = np.polyfit(xs, ys, 1, w=1 / ys)
  return Line(float(a), float(b))


class Fitted(NamedTuple):
  """The fitted lines and the measured values of one system."""

  ps_ms: Line  # p(v)
  graph_s: Line  # g(v)
  ps_ms_of_workers: Line  # q(w)
  ps_mb: Line  # m(w)
  rates: Dict[int, float]  # r by the number of variables
  bytes: Dict[int, float]  # B by the number of variables


def fit_system(rows: Sequence[dict], system: str) -> Fitted:
  """Fits the rows of one system.

  Args:
    rows: the rows of `scaling`.
    system: the system's name in the rows, "classic" or "tf1ps".

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
  """Returns s(t), with and without filters; raises ValueError if there are no rows for it."""
  found = [row for row in rows if row["model"] == "session"]
  if not found:
    raise ValueError(_MISSING % "there are no rows of sessions")
  return {kind: fit([(row["scale"]["tasks"], row["seconds"][kind]) for row in found])
          for kind in ("filtered", "unfiltered")}


def limits(fitted: Fitted, variables: int, workers: int, ps: int, cores: int,
           gbit: float) -> Dict[str, float]:
  """Returns the steps per second that workers ask for and that the ps can do, and w*.

  Args:
    fitted: the result of `fit_system`.
    variables: the number of variables of the model, which must have been measured.
    workers: the number of workers.
    ps: the number of ps.
    cores: the number of cores of each ps.
    gbit: the rate of each ps's link, each way.
  """
  rate = fitted.rates[variables]
  fixed, each = fitted.ps_ms
  processors = ps * cores * 1000.0 / max(1e-9, ps * max(0.0, fixed) + each * variables)
  wire = ps * gbit * 1e9 / 8 / (fitted.bytes[variables] / 2)
  return {"asked": workers * rate, "processors": processors, "wire": wire,
          "workers": min(processors, wire) / rate}


def report(rows: Sequence[dict], workers: Sequence[int], ps: Sequence[int], cores: int,
           gbit: float) -> List[str]:
  """Returns the fit and its consequences, as lines of Markdown."""
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
