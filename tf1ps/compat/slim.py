"""slim on the newest TensorFlow, with sessions that start and end.

slim is the package `tf_slim` on TensorFlow 2, and a part of TensorFlow 1.15. These things in it are
private and change here:

* tf_slim takes functions from TensorFlow's files, such as `tensorflow.python.ops.array_ops.stack`,
  and newer TensorFlows have moved some of them. They all have public names, which stay.
* tf_slim's `batch_norm` uses TensorFlow's `tensorflow.python.layers.normalization`, which looks for
  the module `tf_keras.legacy_tf_layers`; tf_keras has it as `tf_keras.src.legacy_tf_layers`.
* slim's training loops take the Supervisor, the session and the optimizer from TensorFlow's files.
  They have no arguments for these.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

import tensorflow.compat.v1 as tf

_LAYERS, _LAYERS_TODAY = "tf_keras.legacy_tf_layers", "tf_keras.src.legacy_tf_layers"
_PUBLIC_NAMES = {"variable": "Variable"}  # where they differ


class _SlimFile:
  """A file of TensorFlow, in which some names are others; those it has lost are public names."""

  def __init__(self, module, names):
    self._module = module
    self.__dict__.update(names)

  def __getattr__(self, name):
    if hasattr(self._module, name):
      return getattr(self._module, name)
    return getattr(tf, _PUBLIC_NAMES.get(name, name))


def fix_tf_slim() -> None:
  """Imports tf_slim, and gives it what it looks for in vain in TensorFlow and tf_keras."""
  if importlib.util.find_spec(_LAYERS) is None:
    for name in ("", ".normalization"):
      sys.modules[_LAYERS + name] = importlib.import_module(_LAYERS_TODAY + name)
  importlib.import_module("tf_slim")
  for module in [sys.modules[name] for name in sorted(sys.modules) if name.startswith("tf_slim")]:
    for name, value in list(vars(module).items()):
      if isinstance(value, types.ModuleType) and value.__name__.startswith("tensorflow.python."):
        replace_names(module, name, {})


def replace_names(module, file, names) -> None:
  """Has a module of slim find other classes in a file of TensorFlow.

  Args:
    module: the module.
    file: the name under which it has imported the file.
    names: {name of a class of the file: the class to find}.

  Raises:
    AttributeError: the module or the file has no such name any more.
  """
  imported = getattr(module, file)
  for name in names:
    getattr(imported, name)
  setattr(module, file, _SlimFile(imported, names))
