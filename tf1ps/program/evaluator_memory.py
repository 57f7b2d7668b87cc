"""What an evaluator knows over a restart: a file beside its summaries.

The file is replaced after each evaluation, in one step. A kill before that has the checkpoint
evaluated once more.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Dict, Iterable, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import temporary_path
from tf1ps.program.evaluation import Evaluation
from tf1ps.program.metric_goals import EarlyStopping

NAME = "tf1ps-evaluator.json"


class Memory(NamedTuple):
  """What an evaluator knows."""

  evaluated: Dict[str, str]  # the stamps of the evaluated checkpoints, by their names
  last: Optional[dict] = None  # the newest evaluation
  best: Optional[dict] = None  # of `BestCheckpoint.to_json`
  patience: Optional[dict] = None  # of `Patience.to_json`


def read_memory(folder: str) -> Optional[Memory]:
  """Returns the memory in a folder, or None if there is none that can be read."""
  try:
    with tf.gfile.GFile(os.path.join(folder, NAME)) as file:
      return Memory(**json.loads(file.read()))
  except (tf.errors.OpError, ValueError, TypeError):
    return None


def read_last(memory: Memory) -> Optional[Evaluation]:
  """Returns the newest evaluation of a memory, or None."""
  try:
    return None if memory.last is None else Evaluation(**memory.last)
  except TypeError:  # of another release
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
    # The index has the checksum of each tensor.
    with tf.gfile.GFile(checkpoint + ".index", "rb") as file:
      return hashlib.md5(file.read()).hexdigest()
  except tf.errors.OpError:
    pass
  try:
    return "%d bytes" % tf.gfile.Stat(checkpoint).length  # TensorFlow's first format: one file
  except tf.errors.OpError:
    return None


def new_ones(listed: Iterable[str], evaluated: Dict[str, str]) -> List[str]:
  """Returns the checkpoints that are there and not evaluated as they are."""
  found = []
  for path in listed:
    stamp = stamp_of(path)
    if stamp is not None and evaluated.get(os.path.basename(path)) != stamp:
      found.append(path)
  return found


class Patience:
  """Counts the evaluations of a run without an improvement, for early stopping."""

  def __init__(self, stopping: EarlyStopping, kept: Optional[dict]):
    """Goes on from `kept`, what `to_json` returned in an earlier process, or None."""
    self._stopping = stopping
    self._run, self._step, self._best, self._stale = "", -1, None, 0
    if kept and kept["goal"] == str(stopping.goal):
      self._run, self._step, self._best, self._stale = (
        kept[name] for name in ("run", "step", "best", "stale"))

  def to_json(self) -> dict:
    """Returns what another process needs to go on."""
    return {"goal": str(self._stopping.goal), "run": self._run, "step": self._step,
            "best": self._best, "stale": self._stale}

  def count(self, run: str, evaluation: Evaluation) -> str:
    """Counts an evaluation of a run; returns why the run must end, or "".

    A new run begins a new count. A checkpoint that is older than one before counts for nothing.
    """
    if run != self._run:
      self._run, self._step, self._best, self._stale = run, -1, None, 0
    step = evaluation.global_step or 0
    if step <= self._step:
      return ""
    self._step = step
    goal, patience = self._stopping
    value = evaluation.metrics[goal.metric]
    if goal.is_better(value, self._best):
      self._best, self._stale = value, 0
    else:
      self._stale += 1
    if self._stale < patience:
      return ""
    return "early stopping: %s has not improved for %d evaluation%s" % (
      goal.metric, self._stale, "" if self._stale == 1 else "s")
