"""A count of steps that others can read without asking: 16 bytes of memory that a file shares.

A script writes the number of its steps and the time after each of them, which takes about a
microsecond; who measures reads them. Time is `time.monotonic`, which all processes of a machine
share.
"""
from __future__ import annotations

import mmap
import struct
import time
from typing import Tuple

_FORM = struct.Struct("=qd")  # steps, seconds


class Counter:
  """The side of the script."""

  def __init__(self, path: str):
    """Opens the count.

    Args:
      path: of the file, or "" to count for nobody.
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
    """Says how many steps were made."""
    self.steps = steps
    if self._memory is not None:
      _FORM.pack_into(self._memory, 0, steps, time.monotonic())


def read(path: str) -> Tuple[int, float]:
  """How many steps were made, and when the last of them ended; (0, now) before there is a file."""
  try:
    with open(path, "rb") as file:
      return _FORM.unpack(file.read(_FORM.size))
  except (OSError, struct.error):
    return 0, time.monotonic()
