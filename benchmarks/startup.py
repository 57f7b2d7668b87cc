"""How long each way of training takes from its start to its first step, on model S.

Each system is started anew in each round, alone. Beside it: Python with TensorFlow imported, which
all of them begin with.
"""
from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from typing import List

from benchmarks import comparisons, global_steps, interleaving, jobs, links, rows, systems

_LIMIT = 300.0  # seconds


def run(args) -> List[dict]:
  """Measures; the rows have "seconds" beside the other keys."""
  lines = [comparisons.CLASSIC, comparisons.PEERS[2], comparisons.STRATEGY[0],
           comparisons.DEFAULTS]
  if args.legacy_python:
    lines.insert(1, comparisons.CLASSIC._replace(
      name="classic, TensorFlow 1.15", python=args.legacy_python))
  if args.quick:
    lines = [comparisons.CLASSIC, comparisons.DEFAULTS]
  found = {line.name: [] for line in lines}
  imports: List[float] = []
  reader = global_steps.Reader((), systems.environment())
  folder = tempfile.mkdtemp(prefix="tf1ps-benchmarks-")
  try:
    for _ in range(args.rounds):
      imports.append(_import_seconds())
      for line in lines:
        try:
          found[line.name].append(_first_step_seconds(line, folder, reader))
        except jobs.JobError as error:
          interleaving.leave_out(error)
  finally:
    reader.close()
    shutil.rmtree(folder, ignore_errors=True)
  made = [_row("import of TensorFlow", "", imports, None)]
  base = found[comparisons.CLASSIC.name]
  return made + [_row(line.name, " ".join(line.options), found[line.name], base)
                 for line in lines if found[line.name]]


def _row(name, options, seconds, base):
  ratio = None
  if base:
    ratio = rows.summary(seconds)["median"] / rows.summary(base)["median"]
  made = rows.row("S", "loopback", name, options, [])
  return dict(made, seconds=rows.summary(seconds), seconds_to_classic=ratio)


def _import_seconds():
  began = time.monotonic()
  subprocess.run([sys.executable, "-c", "import tensorflow.compat.v1"], check=True,
                 env=systems.environment(), stderr=subprocess.DEVNULL, timeout=_LIMIT)
  return time.monotonic() - began


def _first_step_seconds(line, folder, reader):
  began = time.monotonic()
  job = jobs.Job(line, systems.Run("S", folder, links.LOOPBACK), reader)
  try:
    job.wait_for_steps(1, _LIMIT, every=0.02)
    return time.monotonic() - began
  finally:
    job.end()
