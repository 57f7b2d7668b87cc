"""Imports an example to test its functions."""
from __future__ import annotations

import importlib.util

from absl import flags

from tests.examples.docstrings import ROOT


def load(name: str):
  """Imports an example by its path below examples/, without ".py"; returns the module.

  Its flags are gone afterwards: other examples that this process imports define flags of the same
  names.
  """
  path = ROOT / "examples" / (name + ".py")
  spec = importlib.util.spec_from_file_location(path.stem, str(path))
  module = importlib.util.module_from_spec(spec)
  before = set(flags.FLAGS)
  spec.loader.exec_module(module)
  for flag in set(flags.FLAGS) - before:
    delattr(flags.FLAGS, flag)
  return module
