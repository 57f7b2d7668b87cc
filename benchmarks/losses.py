"""The loss that each system reaches on the same data, and whether that makes it another algorithm.

A system trains anew from the same initial values on the same minibatches, each once and in the same
order; then the loss of data that were held out is computed. The classic script does so for several
seeds: the distance of the largest of its losses from the smallest is its spread. A system whose
loss, at the first seed, is further from the classic script's than that is another algorithm,
however fast it is.
"""
from __future__ import annotations

import functools
import math
import shutil
import tempfile
from typing import Dict, Sequence

from benchmarks import interleaving, jobs, links, systems

LIMIT = 600.0  # seconds of one training
SEEDS = 3  # of the classic script


@functools.lru_cache(maxsize=None)
def train(model: str, line: systems.System, minibatches: int, seed: int = 0) -> float:
  """Trains once, over loopback; returns the loss of what is held out, and remembers it.

  Args:
    model: the model's name.
    line: the system.
    minibatches: how many, of all workers together.
    seed: of the order of data and of the initial values.

  Raises:
    JobError: it did not run.
  """
  folder = tempfile.mkdtemp(prefix="tf1ps-benchmarks-")
  run = systems.Run(model, folder, links.LOOPBACK, minibatches // line.minibatches_per_step, seed,
                    minibatches)
  try:
    job = jobs.Job(line, run)
    try:
      return job.loss(LIMIT)
    finally:
      job.end()
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def compare(model: str, lines: Sequence[systems.System], minibatches: int) -> Dict[str, float]:
  """The loss of each system at the first seed, by its name; without those that did not run."""
  found = {}
  for line in lines:
    try:
      found[line.name] = train(model, line, minibatches)
    except jobs.JobError as error:
      interleaving.leave_out(error)
  return found


def spread(model: str, classic: systems.System, minibatches: int, first: float,
           seeds: int = SEEDS) -> float:
  """How far apart the losses of the classic script's seeds are.

  Args:
    model: the model's name.
    classic: the classic script.
    minibatches: how many.
    first: its loss at the first seed.
    seeds: how many there are, the first among them; one at which it does not run is left out.
  """
  found = [first]
  for seed in range(1, seeds):
    try:
      found.append(train(model, classic, minibatches, seed))
    except jobs.JobError as error:
      interleaving.leave_out(error)
  return max(found) - min(found)


def is_another_algorithm(loss: float, classic: float, classic_spread: float) -> bool:
  """Whether a loss is not the classic script's.

  Args:
    loss: the system's.
    classic: the classic script's, at the same seed.
    classic_spread: see `spread`.
  """
  return not math.isfinite(loss) or abs(loss - classic) > max(classic_spread, 1e-6)
