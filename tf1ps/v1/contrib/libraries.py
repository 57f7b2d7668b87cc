"""Finds the names of tf.contrib in today's libraries.

TensorFlow 1.15 has these names itself, except a few that it has moved. On TensorFlow 2 each name
comes from TensorFlow under today's name, from a module beside this file that implements it again,
or from the package tf_slim.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from typing import Dict, Optional, Sequence

import tensorflow

from tf1ps import compat as _compat
from tf1ps.v1 import namespace as _namespace
from tf1ps.v1 import train as _train

IS_IN_TENSORFLOW = hasattr(tensorflow, "contrib")
_LOOPS = {  # of slim: in TensorFlow 1.15 and in tf_slim
  "learning": ("tensorflow.contrib.slim.python.slim.learning", "tf_slim.learning"),
  "training": ("tensorflow.contrib.training.python.training.training",
               "tf_slim.training.training"),
}


def overlay(package: str, drop_ins: Optional[Dict[str, Sequence[str]]] = None,
            heirs: Optional[Dict[str, str]] = None, libraries: Sequence[str] = (),
            advice: str = "", path: str = "", files: Optional[Dict[str, str]] = None,
            lost: str = ""):
  """Declares the names of a namespace of tf.contrib.

  Args:
    package: the `__name__` of the module that is the namespace.
    drop_ins: a row of `compat.DROP_INS`.
    heirs, libraries, advice, path, files, lost: see `compat.Package`.

  Returns:
    The namespace's `__getattr__` and `__dir__`.
  """
  del lost
  name_in_contrib = package[len(__package__) + 1:]
  module_of, name_today = {}, {}
  for module, names in (heirs or {}).items():
    for entry in names.split():
      name, _, new = entry.partition("=")
      module_of[name], name_today[name] = module, new or name

  def absent(name, why):
    return AttributeError("tf.contrib.%s.%s is not there: %s." % (name_in_contrib, name, why))

  def heir(name):  # TensorFlow 1.15 itself has moved some names
    if name not in module_of:
      raise absent(name, advice or "TensorFlow 1.15 is the last with it")
    if not _is_installed(module_of[name]):
      package = module_of[name].partition(".")[0].replace("_", "-")
      raise absent(name, "it needs the package %s. Run: pip install %s" % (package, package))
    module = _import(module_of[name])
    if hasattr(module, name_today[name]) or not _namespace.submodule(module, name_today[name]):
      return getattr(module, name_today[name])
    return _namespace.submodule(module, name_today[name])

  if IS_IN_TENSORFLOW and importlib.util.find_spec("tensorflow.contrib." + name_in_contrib):
    if name_in_contrib in ("slim", "training"):
      _give_loops_our_classes()
    base = importlib.import_module("tensorflow.contrib." + name_in_contrib)
    return _namespace.overlay(package, base, drop_ins, gone=heir)

  def find(name):
    for library in libraries if name not in module_of and _is_installed("tf_slim") else ():
      if hasattr(_import(library), name) or _namespace.submodule(_import(library), name):
        return getattr(_import(library), name)
    if libraries and name not in module_of and not _is_installed("tf_slim"):
      raise absent(name, "it needs the package tf_slim. Run: pip install 'tf1ps[legacy]'")
    return heir(name)

  def list_names():
    names = {name for name, module in module_of.items() if _is_installed(module)}
    for library in libraries if _is_installed("tf_slim") else ():
      names |= set(getattr(_import(library), "__all__", None) or dir(_import(library)))
    return names

  base = types.ModuleType(name_in_contrib)
  base.__dir__ = list_names
  end = None
  if files:
    end = _files("%s.%s" % (package, path), files)
  elif path and not libraries:
    end = sys.modules[package]
  elif path and _is_installed("tf_slim"):
    end = _import(".".join(libraries[0].split(".")[:2]))
  if end is not None:
    setattr(base, path.partition(".")[0], _path(package, path, end))
  return _namespace.overlay(package, base, drop_ins, gone=find)


def _is_installed(module):
  root = module.partition(".")[0]
  return root in ("tf", "tf1ps") or importlib.util.find_spec(root) is not None


@functools.lru_cache(maxsize=None)
def _import(name):
  if name.startswith("tf_slim"):
    _compat.fix_tf_slim()
    _give_loops_our_classes()
  if name == "tf" or name.startswith("tf."):
    return functools.reduce(getattr, name.split(".")[1:], tensorflow.compat.v1)
  return importlib.import_module(name)


@functools.lru_cache(maxsize=None)
def _give_loops_our_classes():
  """Makes slim.learning.train and contrib.training.train use tf1ps' sessions."""
  learning, training = [
      importlib.import_module(names[0 if IS_IN_TENSORFLOW else 1]) for names in _LOOPS.values()]
  stock = tensorflow.compat.v1.train.SyncReplicasOptimizer
  _compat.replace_names(learning, "supervisor", {"Supervisor": _train.Supervisor})
  # slim only asks whether the program's optimizer is of this class.
  _compat.replace_names(learning, "sync_replicas_optimizer", {
    "SyncReplicasOptimizer": (_train.SyncReplicasOptimizer, stock)})
  _compat.replace_names(training, "monitored_session", {
    "MonitoredTrainingSession": _train.MonitoredTrainingSession})


def _files(name, module_of):
  """Makes a package of modules; each is imported at its first use."""
  package = types.ModuleType(name)
  package.__path__ = []

  def find(name):
    if name not in module_of:
      raise AttributeError(name)
    return _import(module_of[name])

  package.__getattr__ = find
  return package


def _path(package, path, end):
  """Makes the modules of a path below a namespace; returns the first."""
  names = path.split(".")
  modules = [end]
  for count in range(len(names) - 1, 0, -1):
    module = types.ModuleType(".".join([package, *names[:count]]))
    module.__path__ = []
    setattr(module, names[count], modules[0])
    modules.insert(0, module)
  return modules[0]
