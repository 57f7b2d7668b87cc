"""Where the names of tf.contrib are today.

TensorFlow 1.15 has them itself, but for a few that it has moved. On TensorFlow 2 each comes from
TensorFlow under its name of today, from a module beside this one that writes it anew, or from the
package tf_slim.
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
            advice: str = "", path: str = "", files: Optional[Dict[str, str]] = None):
  """Declares the names of a namespace of tf.contrib.

  Args:
    package: the `__name__` of the module that is the namespace.
    drop_ins: the names that come from tf1ps, by the room that exports them.
    heirs: the names, with blanks between, by the module that has them today: a dotted name, in
      which "tf" is tensorflow.compat.v1. `old=new` is a name that has changed.
    libraries: modules of tf_slim; all their names are names of this namespace, too.
    advice: for names that are nowhere: what to use.
    path: how legacy programs reach into the files of this namespace, such as "python.layers": it
      leads to these files, else to the package of the first library's names, without libraries to
      the namespace.
    files: the modules below that path, each with the module that has its names today.

  Returns:
    The namespace's `__getattr__` and `__dir__`.
  """
  name_in_contrib = package[len(__package__) + 1:]
  module_of, name_today = {}, {}
  for module, names in (heirs or {}).items():
    for entry in names.split():
      name, _, new = entry.partition("=")
      module_of[name], name_today[name] = module, new or name

  def heir(name):  # TensorFlow 1.15 itself has moved some names
    if name not in module_of:
      raise AttributeError("tf.contrib.%s has no name %s" % (name_in_contrib, name))
    return getattr(_import(module_of[name]), name_today[name])

  if IS_IN_TENSORFLOW:
    if name_in_contrib in ("slim", "training"):
      _give_loops_our_classes()
    base = importlib.import_module("tensorflow.contrib." + name_in_contrib)
    return _namespace.overlay(package, base, drop_ins, gone=heir)

  def find(name):
    if name in module_of and module_of[name] == __package__:  # a module beside this one
      return importlib.import_module("%s.%s" % (__package__, name_today[name]))
    if name in module_of:
      return heir(name)
    for library in libraries if _has_slim() else ():
      if hasattr(_import(library), name) or _namespace.submodule(_import(library), name):
        return getattr(_import(library), name)
    why = advice or "TensorFlow 1.15 is the last with it"
    if libraries and not _has_slim():
      why = "it needs the package tf_slim. Run: pip install 'tf1ps[legacy]'"
    raise AttributeError("tf.contrib.%s.%s is not there: %s." % (name_in_contrib, name, why))

  def list_names():
    names = set(module_of)
    for library in libraries if _has_slim() else ():
      names |= set(getattr(_import(library), "__all__", None) or dir(_import(library)))
    return names

  base = types.ModuleType(name_in_contrib)
  base.__dir__ = list_names
  if files:
    base.python = _path(package, path, _files("%s.%s" % (package, path), files))
  elif path and not libraries:
    base.python = _path(package, path, sys.modules[package])
  elif path and _has_slim():
    base.python = _path(package, path, _import(".".join(libraries[0].split(".")[:2])))
  return _namespace.overlay(package, base, drop_ins, gone=find)


def _has_slim():
  return importlib.util.find_spec("tf_slim") is not None


@functools.lru_cache(maxsize=None)
def _import(name):
  if name.startswith("tf_slim"):
    _compat.mend_tf_slim()
    _give_loops_our_classes()
  if name == "tf" or name.startswith("tf."):
    return functools.reduce(getattr, name.split(".")[1:], tensorflow.compat.v1)
  return importlib.import_module(name)


@functools.lru_cache(maxsize=None)
def _give_loops_our_classes():
  """Lets slim.learning.train and contrib.training.train use tf1ps' sessions."""
  learning, training = [
      importlib.import_module(names[0 if IS_IN_TENSORFLOW else 1]) for names in _LOOPS.values()]
  stock = tensorflow.compat.v1.train.SyncReplicasOptimizer
  _compat.replace_names(learning, "supervisor", {"Supervisor": _train.Supervisor})
  # slim only asks whether the program's optimizer is one.
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
