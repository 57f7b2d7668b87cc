"""Imports all modules that a task may need, in the launcher, once for all tasks."""

from __future__ import annotations

import importlib
import pkgutil

import numpy.random  # noqa: F401  each task draws its own numbers, see task_main.py

import tf1ps

# The modules of the fork server itself, and this module; v1 would change TensorFlow's mode.
_NOT_IN_TASKS = ("tf1ps.launch.fork_server_main", "tf1ps.launch.task_main", "tf1ps.v1", __name__)


def import_all(package=tf1ps) -> None:
  """Imports the modules of all rooms except `_NOT_IN_TASKS`."""
  for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    if module.name not in _NOT_IN_TASKS:
      imported = importlib.import_module(module.name)
      if module.ispkg:
        import_all(imported)


import_all()
