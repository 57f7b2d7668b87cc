"""The benchmarks by their names, each as a function of the command line that returns rows."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Callable, Dict, Iterator, List

from benchmarks import (
  comparisons,
  interleaving,
  mnist_97,
  recovery,
  rows,
  scaling,
  startup,
  systems,
)

# The benchmarks that run as separate programs: the flags of a whole run, and of a quick run.
_PROGRAMS = {
  "input_csv": (lambda args: ["--rounds=%d" % args.rounds],
                ["--rounds=1", "--seconds=0.2", "--records=2000", "--shuffle=100"]),
  "queue_timeout": (lambda args: [], ["--runs=5", "--batches=4"]),
  "staleness": (lambda args: ["--blocks=%d" % (8 * args.rounds)], ["--blocks=2", "--steps=5"]),
}
_LIMIT = 3600.0  # seconds of such a program


def _programs(name: str, args) -> List[dict]:
  full, quick = _PROGRAMS[name]
  handle, path = tempfile.mkstemp(prefix="tf1ps-benchmarks-", suffix=".json")
  os.close(handle)
  try:
    # The program's output is for people; this process's standard output is for tables.
    done = subprocess.run(
      [sys.executable, "-m", "benchmarks." + name, "--json=" + path,
       *(quick if args.quick else full(args))], cwd=systems.ROOT, stdout=sys.stderr,
      env=systems.environment(), timeout=_LIMIT)
    if done.returncode:
      raise RuntimeError("benchmarks.%s ended with %d" % (name, done.returncode))
    return rows.read(path)
  finally:
    os.remove(path)


def _compare(name: str, args) -> Iterator[List[dict]]:
  pace = interleaving.pace_of(args)
  known = comparisons.COMPARISONS
  if args.quick and name in comparisons.QUICK:
    known = comparisons.QUICK
  for one in known[name]:
    if args.only:
      kept = (one.base or comparisons.CLASSIC.name, one.loss_base)
      one = one._replace(lines=[line for line in one.lines
                                if args.only in line.name or line.name in kept])
    yield comparisons.run(one, pace, args.minibatches, args.seeds, args.legacy_python)


_OTHERS: Dict[str, Callable] = {
  "startup": lambda args: [startup.run(args)], "recovery": lambda args: [recovery.run(args)],
  "scaling": scaling.run,
  "mnist_97": lambda args: [mnist_97.run(args)]}


def names(quick: bool = False) -> List[str]:
  """Returns the names of all benchmarks, or the names of the benchmarks that --quick runs."""
  if quick:
    return [*comparisons.QUICK, "queue_timeout", "startup", "scaling"]
  return [*comparisons.COMPARISONS, *_PROGRAMS, *_OTHERS]


def lines(chosen: List[str]) -> List[str]:
  """Returns the names of the systems that these benchmarks, or else all benchmarks, compare."""
  known = {name: [line for one in all_of for line in one.lines]
           for name, all_of in comparisons.COMPARISONS.items()}
  known["mnist_97"] = mnist_97.LINES
  return [line.name for name in (chosen or known) for line in known.get(name, ())]


def run(name: str, args) -> Iterator[List[dict]]:
  """Runs a benchmark; yields the rows of each of its tables.

  Args:
    name: the name of the benchmark.
    args: the command line; see __main__.py.

  Raises:
    interleaving.Skipped, links.LinkError: the benchmark cannot run here.
    RuntimeError: the benchmark failed.
  """
  if name in _PROGRAMS:
    yield _programs(name, args)
  elif name in _OTHERS:
    yield from _OTHERS[name](args)
  else:
    yield from _compare(name, args)
