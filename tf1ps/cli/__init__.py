"""The programs tf1ps-local, -ps, -worker, -evaluator, -predict and -reset: flags and main.

Python code calls them by the names that this room exports.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "calls": ["main", "run_local"],
  "errors": ["UsageError"],
  "results": ["JobResult", "LocalJobError"],
})
