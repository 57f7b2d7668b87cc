"""What a program is, how it is trained, and what becomes of it.

The names below are imported when one of them is first used, so that `from tf1ps import training`
does not import TensorFlow.
"""

from __future__ import annotations

import importlib

# The public names of this room, and the modules they come from.
_MODULES = {
  "ModelSpec": "tf1ps.training.model",
}

__all__ = sorted(_MODULES)


def __getattr__(name):
  if name not in _MODULES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__():
  return sorted(set(globals()) | set(_MODULES))
