"""Finds problems in TensorFlow 1 programs without running them.

`read_program` parses a file. `find_all` lists the lines that fail or behave differently on today's
TensorFlow, and the traps of distributed training. `fix` changes imports and old names.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "findings": ["DIFFERS", "GONE", "TRAP", "Finding", "Rule"],
  "fixing": ["fix"],
  "program": ["SourceFile", "UnreadableError", "read_program"],
  "registry": ["RULES", "find_all"],
})
