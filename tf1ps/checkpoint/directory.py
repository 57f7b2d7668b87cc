"""Checks whether a path can be a checkpoint directory.

This module does not import TensorFlow, because the programs check their flags before that import.
"""

from __future__ import annotations

from tf1ps.compat import Error

_PATTERN = "*?[]\\"  # TensorFlow finds a checkpoint's files by a pattern that begins with its path


class CheckpointError(Error, RuntimeError):
  """A checkpoint, or the state file of its directory, cannot be used."""


def directory_problem(checkpoint_dir: str) -> str:
  """Returns what is wrong with the path of a checkpoint directory, or ""."""
  if not checkpoint_dir:
    return "is empty: give a directory, or leave the option out to keep no checkpoint"
  wildcards = sorted(set(checkpoint_dir) & set(_PATTERN))
  if wildcards:
    return ("must not contain %s: TensorFlow takes such a path for a pattern, and finds no "
            "checkpoint" % " ".join(wildcards))
  return ""
