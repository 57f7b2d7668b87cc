"""Files of `tensorflow.python` as TensorFlow 1.15 has them, for programs that import them.

Newer TensorFlows have moved some of these files, and have moved names out of others. Most of the
names are public, and the public names stay.
"""

from __future__ import annotations

import importlib
import types
from typing import NamedTuple

_PYTHON = "tensorflow.python."


class _File(NamedTuple):
  """Where a file and its names are today."""

  public: str = ""  # the namespace of `tf` where names of this file are today
  renamed: str = ""  # those that are called otherwise there: "old=new"
  today: str = ""  # the file's name today, if it is another


_DISTRIBUTE = _File(today="distribute.distribute_lib")
_FILES = {
  "distribute.distribution_strategy_context": _DISTRIBUTE,
  "framework.graph_util": _File("graph_util"),
  "framework.ops": _File(),
  "ops.array_ops": _File(),
  "ops.control_flow_ops": _File(),
  "ops.data_flow_ops": _File(),
  "ops.math_ops": _File(),
  "ops.nccl_ops": _File(),
  "ops.nn": _File("nn"),
  "ops.random_ops": _File(),
  "ops.summary_ops_v2": _File("summary"),
  "ops.variable_scope": _File(renamed="variable=Variable"),
  "ops.variables": _File(renamed="VariableV1=Variable"),
  "pywrap_tensorflow": _File("train"),
  "training.checkpoint_management": _File("train"),
  "training.distribute": _DISTRIBUTE,
  "training.distribution_strategy_context": _DISTRIBUTE,
  "training.gen_training_ops": _File(today="ops.gen_training_ops"),
  "training.training_ops": _File(today="ops.gen_training_ops"),
  "util.nest": _File("nest", "is_sequence=is_nested"),
}
# {name of the module: name in `internal_file`}
INTERNAL_FILES = {_PYTHON + name: name.replace(".", "_") for name in _FILES}
MOVED_FILES = tuple(_PYTHON + name for name, file in _FILES.items() if file.today)


def internal_file(name: str) -> types.ModuleType:
  """Returns a module of INTERNAL_FILES with the names of TensorFlow 1.15.

  Raises:
    AttributeError: the module is unknown.
  """
  names = [full for full, key in INTERNAL_FILES.items() if key == name]
  if not names:
    raise AttributeError(name)
  file = _FILES[names[0][len(_PYTHON):]]
  try:
    base = importlib.import_module(names[0])
  except ModuleNotFoundError:
    base = importlib.import_module(_PYTHON + file.today)
  public = importlib.import_module("tensorflow.compat.v1")
  if file.public:
    public = getattr(public, file.public)
  renamed = dict(each.split("=") for each in file.renamed.split())

  def find(attribute):
    if hasattr(base, attribute) or attribute.startswith("_"):
      return getattr(base, attribute)
    return getattr(public, renamed.get(attribute, attribute))

  module = types.ModuleType(names[0], base.__doc__)
  module.__getattr__ = find
  module.__dir__ = lambda: dir(base)
  return module
