"""The base class of every error that tf1ps raises, and the text of TensorFlow's errors."""

from __future__ import annotations

import re
from typing import List

# TensorFlow 2.21 puts these lines before the message: "Graph execution error:", the operation's
# origin, the task's name through a gRPC session, and two rules around a list of several errors.
# 1.15 begins with the message. Behind it both append the log of earlier steps, in indented lines.
_PREFIXES = re.compile(
  r"Graph execution error|Detected at node|File \"|Node: |=====|\d+ root error\(s\) found")
# Where each error of a list begins: a gRPC session names its task, a direct session numbers it.
_OF_A_TASK = re.compile(r"([A-Za-z_ ]+: )?From /job:\S+:$")
_NUMBERED = re.compile(r"  \(\d+\) [A-Za-z_ ]+: (.*)")
# A Saver that could not restore puts a sentence of its own before the error, on both.
_OF_A_SAVER = "Original error:"
_LOGS = "Recent warning and error logs:"
_ASSERTION = "assertion failed: ["
_NODE = re.compile(r"\{\{node ([^ }]*)")


class Error(Exception):
  """An error that tf1ps raises itself.

  Each subclass also derives from the Python or TensorFlow class that callers already catch, such as
  `ValueError` or `RuntimeError`.
  """


def error_causes(error: BaseException) -> List[str]:
  """Returns the line of an error's text that names the cause, of each error if it lists several.

  Recognise an error by its type first, then by the begin of such a line, and never by a search in
  its text: TensorFlow appends the errors of other steps to it.
  """
  causes: List[str] = []
  is_next = True
  for line in str(error).rpartition(_OF_A_SAVER)[2].splitlines():
    numbered = _NUMBERED.match(line)
    if numbered:
      causes.append(numbered.group(1))
      is_next = False
    elif _OF_A_TASK.match(line):
      is_next = True
    elif is_next and line.strip() and not _PREFIXES.match(line.strip()):
      causes.append(line.strip())
      is_next = False
  return causes


def error_line(error: BaseException) -> str:
  """Returns the line of an error's text that names the cause; its type without such a line."""
  return next(iter(error_causes(error)), type(error).__name__)


def failed_assertions(error: BaseException) -> List[str]:
  """Returns the texts of the failed `Assert` operations that caused an error, without brackets."""
  return [line[len(_ASSERTION):].rstrip("]") for line in error_causes(error)
          if line.startswith(_ASSERTION)]


def failed_nodes(error: BaseException) -> List[str]:
  """Returns the names of the nodes in an error's text, from the inside out.

  The `op` of an error has such a name, but not in a run of `make_callable`, nor in a function.
  """
  return _NODE.findall(str(error).partition(_LOGS)[0])
