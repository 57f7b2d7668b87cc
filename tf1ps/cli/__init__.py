"""Runs jobs from Python, and has the flags and the `main` of each program such as tf1ps-worker.

`run_local` runs a whole job on this machine and returns its results. `main` turns a program file
into a command.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "errors": ["UsageError"],
  "from_python": ["main", "run_local"],
  "results": ["JobResult", "LocalJobError"],
})
