"""The loss that each system reaches on the same data, and whether its loss shows another algorithm.

A system trains again from the same initial values on the same minibatches, each once and in the
same order; then the loss on held-out data is computed. The classic script does so for several
seeds. Its spread is the difference between its largest and its smallest loss. If the loss of a
system, at the first seed, differs from the classic script's loss by more than the spread, the
system is another algorithm, however fast it is.
"""
from __future__ import annotations

import functools
import math
import shutil
import tempfile
from typing import Dict, Sequence

from benchmarks import interleaving, jobs, links, systems

LIMIT = 600.0  # seconds of one training
SEEDS = 3  # the number of the classic script's seeds


@functools.lru_cache(maxsize=None)
def train(model: str, line: systems.System, minibatches: int, seed: int = 0) -> float:
  """Trains once, over loopback; returns the loss on the held-out data, and caches it.

  Args:
    model: the model's name.
    line: the system.
    minibatches: the number of minibatches of all workers together.
    seed: the seed of the order of data and of the initial values.

  Raises:
    JobError: the system did not run.
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
  """Returns the loss of each system at the first seed, by name; omits systems that did not run."""
  found = {}
  for line in lines:
    try:
      found[line.name] = train(model, line, minibatches)
    except jobs.JobError as error:
      interleaving.leave_out(error)
  return found


def spread(model: str, classic: systems.System, minibatches: int, first: float,
           seeds: int = SEEDS) -> float:
  """Returns the difference between the largest and the smallest loss of the classic script's seeds.

  Args:
    model: the model's name.
    classic: the classic script.
    minibatches: the number of minibatches.
    first: the loss at the first seed.
    seeds: the number of seeds, including the first; a seed at which the script does not run is left
      out.
  """
  found = [first]
  for seed in range(1, seeds):
    try:
      found.append(train(model, classic, minibatches, seed))
    except jobs.JobError as error:
      interleaving.leave_out(error)
  return max(found) - min(found)


def is_another_algorithm(loss: float, classic: float, classic_spread: float) -> bool:
  """Whether a loss differs from the classic script's loss by more than the spread.

  Args:
    loss: the system's loss.
    classic: the classic script's loss at the same seed.
    classic_spread: the spread of the classic script; see `spread`.
  """
  return not math.isfinite(loss) or abs(loss - classic) > max(classic_spread, 1e-6)
