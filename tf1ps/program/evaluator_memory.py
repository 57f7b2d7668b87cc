"""The memory of an evaluator across a restart: a file beside its summaries.

The file is replaced atomically after each evaluation. If the evaluator is killed before that, the
next start evaluates the checkpoint again.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Dict, Iterable, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import temporary_path
from tf1ps.program.evaluation import Evaluation
from tf1ps.program.metric_goals import MetricGoal

NAME = "tf1ps-evaluator.json"
# The types of the values for `BestCheckpoint` and `Patience`, to detect a damaged file.
_BEST = {"goal": str, "value": (int, float), "checkpoint": str}
_PATIENCE = {"goal": str, "run": str, "step": int, "best": (int, float, type(None)), "stale": int}


class Memory(NamedTuple):
  """The content of the file."""

  evaluated: Dict[str, str]  # {name of an evaluated checkpoint: its stamp}
  last: Optional[dict] = None  # the newest evaluation
  best: Optional[dict] = None  # of `BestCheckpoint.to_json`
  patience: Optional[dict] = None  # of `Patience.to_json`


def read_memory(folder: str) -> Optional[Memory]:
  """Returns the memory in a folder; None if its file is missing or damaged."""
  try:
    with tf.gfile.GFile(os.path.join(folder, NAME)) as file:
      memory = Memory(**json.loads(file.read()))
    best, patience = memory.best, memory.patience
    parts = [(memory._asdict(), {"evaluated": dict})]
    parts += [] if best is None else [(best, _BEST)]
    parts += [] if patience is None else [(patience, _PATIENCE)]
    if all(isinstance(part[name], kind) for part, kinds in parts for name, kind in kinds.items()):
      return memory
  except (tf.errors.OpError, ValueError, KeyError, TypeError):
    pass
  return None


def read_last(memory: Memory) -> Optional[Evaluation]:
  """Returns the newest evaluation of a memory, or None."""
  try:
    return None if memory.last is None else Evaluation(**memory.last)
  except TypeError:  # an evaluation of another release
    return None


def write_memory(folder: str, memory: Memory) -> None:
  """Replaces the memory in a folder; raises tf.errors.OpError."""
  path = os.path.join(folder, NAME)
  tf.gfile.MakeDirs(folder)
  temporary = temporary_path(path)
  with tf.gfile.GFile(temporary, "w") as file:
    file.write(json.dumps(dict(memory._asdict())))
  tf.gfile.Rename(temporary, path, overwrite=True)


def stamp_of(checkpoint: str) -> Optional[str]:
  """Returns a text that changes with the checkpoint's values; None if it was deleted."""
  try:
    # The index contains the checksum of each tensor.
    with tf.gfile.GFile(checkpoint + ".index", "rb") as file:
      return hashlib.md5(file.read()).hexdigest()
  except tf.errors.OpError:
    pass
  try:
    return "%d bytes" % tf.gfile.Stat(checkpoint).length  # TensorFlow's first format: one file
  except tf.errors.OpError:
    return None


def new_checkpoints(listed: Iterable[str], evaluated: Dict[str, str]) -> List[str]:
  """Returns the checkpoints whose present values are not evaluated."""
  new = []
  for path in listed:
    stamp = stamp_of(path)
    if stamp is not None and evaluated.get(os.path.basename(path)) != stamp:
      new.append(path)
  return new


class Patience:
  """Counts the evaluations of a run without an improvement, for early stopping."""

  def __init__(self, goal: MetricGoal, kept: Optional[dict]):
    """Continues from `kept`, the result of `to_json` in an earlier process, or None."""
    self._goal = goal
    self._run, self._step, self._best, self._stale = "", -1, None, 0
    if kept and kept["goal"] == str(goal):
      self._run, self._step, self._best, self._stale = (
        kept[name] for name in ("run", "step", "best", "stale"))

  def to_json(self) -> dict:
    """Returns the state from which another process continues."""
    return {"goal": str(self._goal), "run": self._run, "step": self._step,
            "best": self._best, "stale": self._stale}

  def count(self, run: str, evaluation: Evaluation) -> str:
    """Counts an evaluation of a run; returns why the run must end, or "".

    A new run begins a new count. A checkpoint that is not newer than the last does not count.
    """
    if run != self._run:
      self._run, self._step, self._best, self._stale = run, -1, None, 0
    step = evaluation.global_step or 0
    if step <= self._step:
      return ""
    self._step = step
    goal = self._goal
    value = evaluation.metrics[goal.metric]
    if goal.is_better(value, self._best, goal.least):
      self._best, self._stale = value, 0
    else:
      self._stale += 1
    if self._stale < goal.patience:
      return ""
    return "early stopping: %s has not improved%s for %d evaluation%s" % (
      goal.metric, " by more than %g" % goal.least if goal.least else "", self._stale,
      "" if self._stale == 1 else "s")
