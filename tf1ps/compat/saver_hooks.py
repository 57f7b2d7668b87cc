"""The arguments of TensorFlow's hooks, which have no public attributes.

tf.estimator, and programs with a listener, hand a `tf.train.CheckpointSaverHook` to the session
complete. It saves before the other workers have ended, and their last steps are lost: tf1ps' saver
takes its place. A `tf.train.StopAtStepHook` says whether a job that has ended has reached its end.
A `tf.train.LoggingTensorHook` counts runs, of which each may make several steps.
TensorFlow's hooks refuse a global step of floats, unless they find its value in the graph.
"""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Sequence, Tuple

import tensorflow.compat.v1 as tf

_STEP_FOR_HOOKS = "global_step_read_op_cache"  # the collection in which the hooks look first


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
  """Returns the `last_step` of the first `tf.train.StopAtStepHook` with a last step, or None."""
  steps = [hook._last_step for hook in hooks if isinstance(hook, tf.train.StopAtStepHook)]
  return next((step for step in steps if step is not None), None)


def stop_arguments(hook: tf.train.StopAtStepHook) -> Tuple[Optional[int], Optional[int]]:
  """Returns the arguments num_steps and last_step that a hook was made with."""
  return hook._num_steps, hook._last_step


def add_iterations(hook: tf.train.LoggingTensorHook, count: int) -> None:
  """Has a hook that logs every so many runs count more of them."""
  hook._iter_count += count


def give_step_to_hooks(step: tf.Tensor) -> None:
  """Has TensorFlow's hooks that begin later take the global step of this graph from a tensor.

  Args:
    step: an integer, [].
  """
  collection = tf.get_collection_ref(_STEP_FOR_HOOKS)
  if not collection:
    collection.append(step)


def saver_arguments(hook: tf.train.CheckpointSaverHook) -> SaverArguments:
  """Returns the arguments that a hook was made with."""
  timer = hook._timer
  return SaverArguments(
    hook._checkpoint_dir, os.path.basename(hook._save_path), timer._every_secs, timer._every_steps,
    hook._saver, hook._scaffold, hook._listeners, getattr(hook, "_save_graph_def", True))
