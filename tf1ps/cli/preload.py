"""Imports all modules that a task may need. The launcher does it once for all tasks."""

from __future__ import annotations

import importlib
import pkgutil

import tf1ps

# The modules of the fork server itself, and this one.
_NOT_IN_TASKS = ("tf1ps.launch.fork_server_main", "tf1ps.launch.task_main", __name__)


def import_all() -> None:
  """Imports the modules of all rooms but `_NOT_IN_TASKS`."""
  for module in pkgutil.walk_packages(tf1ps.__path__, "tf1ps."):
    if module.name not in _NOT_IN_TASKS:
      importlib.import_module(module.name)


import_all()
