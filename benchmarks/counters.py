"""A count of steps that other processes can read from 16 bytes of memory that a file shares.

A script writes the number of its steps and the time after each step, which takes about a
microsecond. The process that measures reads both. Time is `time.monotonic`, which all processes of
a machine share.
"""
from __future__ import annotations

import mmap
import struct
import time
from typing import Tuple

_FORM = struct.Struct("=qd")  # steps, seconds


class Counter:
  """The script's side of the count."""

  def __init__(self, path: str):
    """Opens the count.

    Args:
      path: the path of the file; "": the count is not shared.
    """
    self.steps = 0
    self._memory = None
    if path:
      with open(path, "w+b") as file:
        file.write(_FORM.pack(0, time.monotonic()))
        file.flush()
        self._memory = mmap.mmap(file.fileno(), _FORM.size)

  def add(self, steps: int = 1) -> None:
    """Counts steps."""
    self.set(self.steps + steps)

  def set(self, steps: int) -> None:
    """Sets the number of steps that were made."""
    self.steps = steps
    if self._memory is not None:
      _FORM.pack_into(self._memory, 0, steps, time.monotonic())


def read(path: str) -> Tuple[int, float]:
  """Returns the number of steps and when the last step ended; (0, now) before the file exists."""
  try:
    with open(path, "rb") as file:
      return _FORM.unpack(file.read(_FORM.size))
  except (OSError, struct.error):
    return 0, time.monotonic()
