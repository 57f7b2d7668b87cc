"""The file in which a worker notes each run of its loop; tf1ps-tune reads it during training.

This module does not import TensorFlow: the launcher reads the file. `progress.StepNotes` writes it.
"""

from __future__ import annotations

import os
import struct
from typing import List, NamedTuple

_FORMAT = struct.Struct("=dqqd")


class NotedRun(NamedTuple):
  """A run of the loop."""

  at: float  # its end, as of `time.monotonic`, which all processes of a machine share
  steps: int  # of this worker so far, including the steps of other threads
  examples: int  # of this worker so far
  loss: float  # the mean of its steps


def as_bytes(run: NotedRun) -> bytes:
  """Returns a run in the format of the file."""
  return _FORMAT.pack(*run)


def read_step_log(path: str) -> List[NotedRun]:
  """Reads the file, which may still grow or not be there yet."""
  if not os.path.exists(path):
    return []
  with open(path, "rb") as file:
    content = file.read()
  whole = len(content) // _FORMAT.size * _FORMAT.size
  return [NotedRun(*fields) for fields in _FORMAT.iter_unpack(content[:whole])]
