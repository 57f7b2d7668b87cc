"""The arguments of TensorFlow's hooks, which have no public attributes.

tf.estimator, and programs with a listener, hand a `tf.train.CheckpointSaverHook` to the session
complete. It saves before the other workers have ended, and their last steps are lost: tf1ps' saver
takes its place. A `tf.train.StopAtStepHook` says whether a job that has ended has reached its end.
"""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf


class SaverArguments(NamedTuple):
  """The arguments of a saver hook."""

  checkpoint_dir: str
  basename: str  # the names of the checkpoints before "-STEP"
  save_secs: Optional[float]  # seconds between two checkpoints, or None
  save_steps: Optional[int]  # global steps between two checkpoints, or None
  saver: Optional[tf.train.Saver]  # None: the scaffold's
  scaffold: Optional[tf.train.Scaffold]
  listeners: List[tf.train.CheckpointSaverListener]
  save_graph_def: bool


def last_step_of(hooks: Sequence[tf.train.SessionRunHook]) -> Optional[int]:
  """Returns the last global step of the first `tf.train.StopAtStepHook` that was made with one."""
  found = [hook._last_step for hook in hooks if isinstance(hook, tf.train.StopAtStepHook)]
  return next((step for step in found if step is not None), None)


def saver_arguments(hook: tf.train.CheckpointSaverHook) -> SaverArguments:
  """Returns the arguments that a hook was made with."""
  timer = hook._timer
  return SaverArguments(
    hook._checkpoint_dir, os.path.basename(hook._save_path), timer._every_secs, timer._every_steps,
    hook._saver, hook._scaffold, hook._listeners, getattr(hook, "_save_graph_def", True))
