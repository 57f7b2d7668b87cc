"""Checks the arguments of evaluate, predict and export, before TensorFlow is imported.

Paths that are URLs are left to TensorFlow.
"""

from __future__ import annotations

import os
from typing import Optional

from tf1ps.checkpoint import CheckpointError
from tf1ps.compat import Error, near_path
from tf1ps.pipeline import FAIL_ON_BAD_RECORD

LATEST = "latest"  # means the latest checkpoint in the directory
INPUTS = (".csv", ".jsonl", ".npz", ".tfrecord")
OUTPUTS = (".csv", ".jsonl", ".npz")


class CallError(Error, ValueError):
  """An argument of a call is missing or has a wrong value."""


class NewDataError(Error, ValueError):
  """A file of new data cannot be read, or does not fit the program's features."""


class PredictionError(Error, RuntimeError):
  """Predictions cannot be made or written."""


def path_of(checkpoint: Optional[str]) -> Optional[str]:
  """Returns the path of a chosen checkpoint; None for the latest."""
  return None if checkpoint in (None, LATEST) else os.fspath(checkpoint)


def check_given(checkpoint_dir: Optional[str], checkpoint: Optional[str]) -> None:
  """Raises CallError if neither a directory nor a checkpoint was given."""
  if not (checkpoint_dir or path_of(checkpoint)):
    raise CallError("--checkpoint_dir is missing: the directory of a finished job")


def check_checkpoint(checkpoint_dir: Optional[str], checkpoint: Optional[str]) -> None:
  """Raises CheckpointError if the checkpoint, or any checkpoint in the directory, cannot exist."""
  checkpoint_dir = os.fspath(checkpoint_dir or "")
  path = path_of(checkpoint)
  if path is not None:
    is_there = "://" in path or os.path.exists(path) or os.path.exists(path + ".index")
  else:
    is_there = "://" in checkpoint_dir or _may_have_checkpoint(checkpoint_dir)
  if not is_there:
    raise no_checkpoint(checkpoint_dir, checkpoint)


def _may_have_checkpoint(folder: str) -> bool:
  try:
    names = os.listdir(folder)
  except OSError:  # a directory that cannot be listed may have files that can be read
    return os.path.isdir(folder)
  return any(name == "checkpoint" or name.endswith(".index") for name in names)


def no_checkpoint(checkpoint_dir: Optional[str], checkpoint: Optional[str]) -> CheckpointError:
  """Returns the error for a missing checkpoint, or for a directory without checkpoints."""
  checkpoint_dir = os.fspath(checkpoint_dir or "")
  path = path_of(checkpoint)
  if path is not None:
    near = near_path(path + ".index").replace(".index", "")
    return CheckpointError(f"the checkpoint {path} does not exist: give the path without the "
                           f"endings of its files, such as DIR/model.ckpt-100{near}")
  if "://" in checkpoint_dir or os.path.isdir(checkpoint_dir):
    return CheckpointError(f"{checkpoint_dir} has no checkpoint")
  return CheckpointError(
    f"the checkpoint directory {checkpoint_dir} does not exist{near_path(checkpoint_dir)}")


def check_input(path: str, on_bad_record: str = FAIL_ON_BAD_RECORD) -> None:
  """Raises CallError or NewDataError unless `path` can be a file of new data."""
  if on_bad_record != FAIL_ON_BAD_RECORD:
    raise CallError(f"--on_bad_record={on_bad_record} applies to the program's own input: each "
                    "record of --input must be good")
  check_ending(path)
  if "://" not in path and not os.path.exists(path):
    raise NewDataError(f"the file {path} does not exist{near_path(path)}")


def check_ending(path: str) -> None:
  """Raises NewDataError unless the name of a file of new data has a known ending."""
  if os.path.splitext(path)[1] not in INPUTS:
    raise NewDataError(f"the new data must end in {', '.join(INPUTS)}, got {path!r}")


def check_output(path: str) -> None:
  """Raises PredictionError unless a file of this name can be written."""
  if os.path.splitext(path)[1] not in OUTPUTS:
    raise PredictionError(f"output must end in {', '.join(OUTPUTS)}, got {path!r}")
  folder = os.path.dirname(os.path.abspath(path))
  if "://" not in path and not os.path.isdir(folder):  # a store of objects has no folders
    raise PredictionError(f"output {path!r}: the folder {folder} does not exist{near_path(folder)}")
  if os.path.isdir(path):
    raise PredictionError(f"output {path!r} is a directory: give the name of a file")
