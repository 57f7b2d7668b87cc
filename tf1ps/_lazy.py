"""Public names that are imported when they are first used.

A room's `__init__` names its public surface without importing TensorFlow, or anything else.
"""

from __future__ import annotations

import importlib
import sys
from typing import Dict, List


def exports(package: str, modules: Dict[str, List[str]]):
  """Declares the public names of a package.

  Args:
    package: the package's `__name__`.
    modules: for each module of the package its public names.

  Returns:
    The package's `__all__`, `__getattr__` and `__dir__`.
  """
  module_of = {name: module for module, names in modules.items() for name in names}

  def get(name):
    if name not in module_of:
      raise AttributeError("module %r has no attribute %r" % (package, name))
    value = getattr(importlib.import_module("%s.%s" % (package, module_of[name])), name)
    setattr(sys.modules[package], name, value)
    return value

  def list_names():
    return sorted(set(vars(sys.modules[package])) | set(module_of))

  return sorted(module_of), get, list_names
