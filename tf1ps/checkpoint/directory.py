"""The paths that can be a checkpoint directory.

This module does not import TensorFlow, because the programs check their flags before that import.
"""

from __future__ import annotations

_PATTERN = "*?[]\\"  # TensorFlow finds a checkpoint's files by a pattern that begins with its path


def directory_problem(checkpoint_dir: str) -> str:
  """Returns what is wrong with the path of a checkpoint directory, or ""."""
  if not checkpoint_dir:
    return "is empty: give a directory, or leave the option out to keep no checkpoint"
  found = sorted(set(checkpoint_dir) & set(_PATTERN))
  if found:
    return ("must not contain %s: TensorFlow takes such a path for a pattern, and finds no "
            "checkpoint" % " ".join(found))
  return ""
