"""What an error of TensorFlow says, in one line.

TensorFlow 2.21 puts "Graph execution error:" and the operation's origin before the old message,
and through a gRPC session "From /job:ps/replica:0/task:0:" as well; where several tasks failed, it
lists their errors between two rules. 1.15 begins with the message. A Saver that could not restore
puts a sentence of its own before it, on both, which does not tell what is missing.
"""

from __future__ import annotations

import re

_PREFIXES = re.compile(
  r"Graph execution error|([A-Z_]+: )?From /job:|Detected at node|File \"|Node: |=====")
_OF_A_SAVER = "Original error:"


def error_line(error: BaseException) -> str:
  """The first line of an error's text that says what happened; its type where none does."""
  for line in str(error).rpartition(_OF_A_SAVER)[2].splitlines():
    line = line.strip()
    if line and not _PREFIXES.match(line):
      return line
  return type(error).__name__
