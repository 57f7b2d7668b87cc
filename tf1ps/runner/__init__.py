"""Runs a legacy program's files unchanged: other imports, Python 2, and its own lines in errors."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "files": ["files_of_module", "find_own_files", "is_own_file"],
  "imports": ["Replacement", "replace_imports"],
  "loader": ["Compiler", "ProgramNotFoundError", "answer_imports", "code_of_module", "run_code"],
  "python2": ["MissingLibraryError", "Python2", "looks_like_python2"],
})
