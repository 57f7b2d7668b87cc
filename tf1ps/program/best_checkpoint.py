"""Keeps the best checkpoint of a run in a folder of its own, where no other save deletes it.

The chief may delete a checkpoint while it is evaluated. So the evaluator links the files of each
checkpoint into the folder first, and evaluates these (`pin`). Then it either keeps them, or removes
them again (`judge`). Where the file system has no hard links, it copies the files of a better
checkpoint after the evaluation.

The folder's state file names the best checkpoint. It is replaced when all files are there, so that
a kill at any moment leaves a complete best checkpoint.
"""

from __future__ import annotations

import logging
import os
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoint_exists, checkpoint_files, name_latest, named_in
from tf1ps.program.metric_goals import MetricGoal

_log = logging.getLogger("tf1ps")

FOLDER = "best"  # in the checkpoint directory


class BestCheckpoint:
  """The best checkpoint so far.

  Attributes:
    value: its value of the metric; None before there is one.
  """

  def __init__(self, checkpoint_dir: str, goal: MetricGoal, kept: Optional[dict]):
    """Goes on from `kept`, what `to_json` returned in an earlier process, or None."""
    self._folder, self._goal = os.path.join(checkpoint_dir, FOLDER), goal
    self.value, self._name = None, None
    named = named_in(self._folder)
    if kept and kept["goal"] == str(goal) and named and checkpoint_exists(named) \
        and os.path.basename(named) == kept["checkpoint"]:
      self.value, self._name = kept["value"], kept["checkpoint"]
    self._remove_others()

  def to_json(self) -> Optional[dict]:
    """Returns what another process needs to go on."""
    if self._name is None:
      return None
    return {"goal": str(self._goal), "value": self.value, "checkpoint": self._name}

  def pin(self, path: str) -> str:
    """Returns a path of the checkpoint that nobody deletes; the given one if there is none."""
    pinned = os.path.join(self._folder, os.path.basename(path))
    if "://" in path or checkpoint_exists(pinned):
      return path
    try:
      os.makedirs(self._folder, exist_ok=True)
      for file in checkpoint_files(path):
        os.link(file, os.path.join(self._folder, os.path.basename(file)))
      return pinned
    except OSError:  # no hard links here, or the checkpoint was just deleted
      self._remove_others()
      return path

  def judge(self, path: str, pinned: str, value: Optional[float]) -> None:
    """Keeps a checkpoint whose value is better; removes the link to any other.

    Args:
      path: the checkpoint.
      pinned: what `pin` returned for it.
      value: its value of the metric; None if it was not evaluated.
    """
    if value is not None and self._goal.is_better(value, self.value):
      name = os.path.basename(path)
      try:
        if pinned == path:
          tf.gfile.MakeDirs(self._folder)
          for file in checkpoint_files(path):
            tf.gfile.Copy(file, os.path.join(self._folder, os.path.basename(file)), overwrite=True)
        name_latest(self._folder, name)
      except (tf.errors.OpError, OSError) as error:
        _log.warning("the best checkpoint so far, %s, could not be kept: %s. A larger "
                     "--keep_checkpoint_max leaves more time for it", path, error)
      else:
        self.value, self._name = value, name
        _log.info("the best %s so far, %.4f: kept as %s", self._goal.metric, value,
                  os.path.join(self._folder, name))
    self._remove_others()

  def _remove_others(self):
    try:
      for file in tf.gfile.Glob(os.path.join(self._folder, "*")):
        name = os.path.basename(file)
        if name != "checkpoint" and os.path.splitext(name)[0] != self._name:
          tf.gfile.Remove(file)
    except tf.errors.OpError as error:
      _log.info("older checkpoints stay in %s: %s", self._folder, error.message)
