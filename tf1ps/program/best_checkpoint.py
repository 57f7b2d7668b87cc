"""Keeps the best checkpoint of a run in a separate folder, where no other save deletes it.

The chief may delete a checkpoint during its evaluation. So the evaluator first links the files of
each checkpoint into the folder, and evaluates the links (`pin`). Then it keeps or removes the links
(`judge`). If the file system has no hard links, the evaluator copies the files of a better
checkpoint after the evaluation.

The folder's state file names the best checkpoint. The state file is replaced after all files are in
the folder, so that a kill at any moment leaves a complete best checkpoint. If the value of that
checkpoint is no longer known, because a file was lost or another metric counts now, `find`
evaluates the folder's checkpoints.
"""

from __future__ import annotations

import logging
import os
from typing import Callable, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import (
  CheckpointError,
  checkpoint_exists,
  checkpoint_files,
  name_latest,
  named_in,
  verify_checkpoint,
)
from tf1ps.compat import error_line
from tf1ps.program.evaluation import Evaluation, format_evaluation
from tf1ps.program.metric_goals import MetricGoal

_log = logging.getLogger("tf1ps")

FOLDER = "best"  # in the checkpoint directory
EXPORTED = "saved_model"  # in this folder, at the end of a run


class BestCheckpoint:
  """The best checkpoint so far.

  Attributes:
    value: the checkpoint's value of the metric; None before the first evaluation.
  """

  def __init__(self, checkpoint_dir: str, goal: MetricGoal, kept: Optional[dict]):
    """Continues from `kept`, the result of `to_json` in an earlier process, or None."""
    self._folder, self._goal = os.path.join(checkpoint_dir, FOLDER), goal
    self.value, self._name, self._text = None, None, ""
    self._unknown: List[str] = []  # checkpoints whose values are not known
    names = self._names_in_folder()
    named = named_in(self._folder)
    if kept and kept["goal"] == str(goal) and kept["checkpoint"] in names and (
        named is None or os.path.basename(named) == kept["checkpoint"]):
      self.value, self._name = kept["value"], kept["checkpoint"]
      self._text = kept.get("text", "")  # older releases keep none
      if named is None:
        name_latest(self._folder, self._name)
      self._remove_others()
    if self._name is None:
      self._unknown = [os.path.join(self._folder, name) for name in names]

  def _names_in_folder(self) -> List[str]:
    try:
      return sorted(os.path.basename(file)[:-len(".index")]
                    for file in tf.gfile.Glob(os.path.join(self._folder, "*.index")))
    except tf.errors.OpError:  # on 1.15, where the folder is missing
      return []

  def find(self, evaluate: Callable[[str], Optional[Evaluation]]) -> None:
    """Evaluates the checkpoints in the folder if it is not known which checkpoint is the best."""
    best = None
    if self._unknown:
      _log.warning("nothing says how good %s is: evaluating it", " and ".join(self._unknown))
    for path in self._unknown:
      try:
        verify_checkpoint(path)  # a kill may have left a part of a checkpoint
        evaluation = evaluate(path)
      except CheckpointError as error:
        _log.warning("%s. It is not kept as the best checkpoint", error)
        continue
      if evaluation is None:  # interrupted
        return
      if self._goal.is_better(evaluation.metrics[self._goal.metric], None if best is None
                              else best.metrics[self._goal.metric]):
        best = evaluation._replace(checkpoint=path)
    if best is not None:
      self.judge("", best.checkpoint, best)
    if best is None or self._name is not None:
      self._unknown = []
      self._remove_others()

  def to_json(self) -> Optional[dict]:
    """Returns the state from which another process continues."""
    if self._name is None:
      return None
    return {"goal": str(self._goal), "value": self.value, "checkpoint": self._name,
            "text": self._text}

  def finish(self, export: Optional[Callable[[str, str], object]]) -> str:
    """Exports the best checkpoint at the end of a run; returns a text about it, or "".

    `export` gets the checkpoint's path and the directory to make; None: nothing is exported.
    """
    if self._name is None:
      return ""
    path, exported = (os.path.join(self._folder, name) for name in (self._name, EXPORTED))
    text = "the best: %s in %s" % (self._text or self._name, path)
    if export is None:
      return text
    try:
      self._remove_export()
      export(path, exported)
    except Exception as error:  # of the program in mode "predict"
      _log.warning("the best checkpoint is not exported: %s: %s", type(error).__name__,
                   error_line(error))
      return text
    return "%s, exported to %s" % (text, exported)

  def pin(self, path: str) -> str:
    """Links a checkpoint into the folder; returns the link's path, or `path` if that fails."""
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

  def judge(self, path: str, pinned: str, evaluation: Optional[Evaluation]) -> None:
    """Keeps a checkpoint whose value is better; removes the link to any other checkpoint.

    Args:
      path: the checkpoint.
      pinned: the path that `pin` returned for it.
      evaluation: the checkpoint's evaluation; None if it was not evaluated.
    """
    value = None if evaluation is None else evaluation.metrics[self._goal.metric]
    if evaluation is not None and self._goal.is_better(value, self.value):
      name = os.path.basename(pinned)
      try:
        if pinned == path:
          tf.gfile.MakeDirs(self._folder)
          for file in checkpoint_files(path):
            tf.gfile.Copy(file, os.path.join(self._folder, os.path.basename(file)), overwrite=True)
        self._remove_export()  # the export of the previous best checkpoint
        name_latest(self._folder, name)
      except (tf.errors.OpError, OSError) as error:
        _log.warning("the best checkpoint so far, %s, could not be kept: %s. A larger "
                     "--save_checkpoints=keep:N leaves more time for it", path or pinned, error)
      else:
        self.value, self._name, self._text = value, name, format_evaluation(evaluation)
        _log.info("the best %s so far, %.4f: kept as %s", self._goal.metric, value,
                  os.path.join(self._folder, name))
    self._remove_others()

  def _remove_export(self):
    exported = os.path.join(self._folder, EXPORTED)
    if tf.gfile.Exists(exported):
      tf.gfile.DeleteRecursively(exported)

  def _remove_others(self):
    if self._unknown:
      return
    try:
      for file in tf.gfile.Glob(os.path.join(self._folder, "*")):
        name = os.path.basename(file)
        if name not in ("checkpoint", EXPORTED) and os.path.splitext(name)[0] != self._name:
          tf.gfile.Remove(file)
    except tf.errors.OpError as error:
      _log.info("older checkpoints stay in %s: %s", self._folder, error.message)
