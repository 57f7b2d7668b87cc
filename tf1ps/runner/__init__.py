"""Runs the files of a legacy program without changes to them.

It replaces their imports of TensorFlow, converts Python 2 in memory, and keeps their own line
numbers in errors.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "files": ["files_of_module", "find_own_files", "is_own_file"],
  "imports": ["Replacement", "replace_imports"],
  "loader": ["Compiler", "ProgramNotFoundError", "answer_imports", "code_of_module", "run_code"],
  "numpy_hints": ["numpy_hint"],
  "own_flags": ["OwnFlags", "ignored_flags"],
  "python2": ["MissingLibraryError", "Python2", "looks_like_python2"],
})
