"""Measures how long each way of training takes from its start to its first step, on model S.

Each system is started again in each round, while no other system runs. The import of TensorFlow,
with which all systems begin, is measured, too.
"""
from __future__ import annotations

import subprocess
import sys
import time
from typing import List

from benchmarks import comparisons, interleaving, jobs, links, rows, systems

_LIMIT = 300.0  # seconds
_IMPORT = systems.System("import of TensorFlow", "")


def run(args) -> List[dict]:
  """Measures; the rows also have the key "seconds"."""
  lines = [comparisons.CLASSIC, comparisons.PEERS[2], comparisons.STRATEGY[0],
           comparisons.DEFAULTS]
  if args.legacy_python:
    lines.insert(1, comparisons.CLASSIC._replace(
      name="classic, TensorFlow 1.15", python=args.legacy_python))
  if args.quick:
    lines = [comparisons.CLASSIC, comparisons.DEFAULTS]
  found = interleaving.alone([_IMPORT, *lines], args.rounds, _seconds)
  base = found[comparisons.CLASSIC.name]
  return [_row(line.name, " ".join(line.options), found[line.name],
               None if line is _IMPORT else base)
          for line in [_IMPORT, *lines] if found[line.name]]


def _row(name, options, seconds, base):
  ratio = None
  if base:
    ratio = rows.summary(seconds)["median"] / rows.summary(base)["median"]
  made = rows.row("S", "loopback", name, options, [])
  return dict(made, seconds=rows.summary(seconds), seconds_to_classic=ratio)


def _seconds(line, folder, reader):
  began = time.monotonic()
  if line is _IMPORT:
    _import_tensorflow()
    return time.monotonic() - began
  job = jobs.Job(line, systems.Run("S", folder, links.LOOPBACK), reader)
  try:
    job.wait_for_steps(1, _LIMIT, every=0.02)
    return time.monotonic() - began
  finally:
    job.end()


def _import_tensorflow():
  subprocess.run([sys.executable, "-c", "import tensorflow.compat.v1"], check=True,
                 env=systems.environment(), stderr=subprocess.DEVNULL, timeout=_LIMIT)
