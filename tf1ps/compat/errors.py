"""The base class of every error that tf1ps raises, and the text of TensorFlow's errors."""

from __future__ import annotations

import re

# TensorFlow 2.21 puts these lines before the message: "Graph execution error:", the operation's
# origin, the task's name through a gRPC session, and two rules around a list of several errors.
# 1.15 begins with the message.
_PREFIXES = re.compile(
  r"Graph execution error|([A-Z_]+: )?From /job:|Detected at node|File \"|Node: |=====")
# A Saver that could not restore puts a sentence of its own before the error, on both.
_OF_A_SAVER = "Original error:"


class Error(Exception):
  """An error that tf1ps raises itself.

  Each subclass also derives from the Python or TensorFlow class that callers already catch, such as
  `ValueError` or `RuntimeError`.
  """


def error_line(error: BaseException) -> str:
  """Returns the line of an error's text that names the cause; its type without such a line."""
  for line in str(error).rpartition(_OF_A_SAVER)[2].splitlines():
    line = line.strip()
    if line and not _PREFIXES.match(line):
      return line
  return type(error).__name__
