"""A module that answers with names of tf1ps first, and then with TensorFlow's.

Each namespace of TensorFlow in which tf1ps replaces something is a module of this package. A name
is looked up at its first use, in this order: names that the module itself defines, the drop-ins of
tf1ps, TensorFlow's names, names that TensorFlow no longer has. A namespace whose module defines no
names needs no file: `declare` makes it. With `install_finder`, Python also imports the other
namespaces: `from tf1ps.v1.losses import mean_squared_error`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Callable, Dict, Optional, Sequence, Union

_ROOM = __name__.rpartition(".")[0]
_declared: Dict[str, Union[Callable, str]] = {}  # {module without a file: see `declare`}


class UnknownNameError(AttributeError):
  """TensorFlow has never had a name in a namespace: the program may have misspelt it."""

  def __init__(self, name: str):
    super().__init__("tf.%s is not there: TensorFlow has no such name." % name)


def overlay(package: str, base: Optional[types.ModuleType],
            drop_ins: Optional[Dict[str, Sequence[str]]] = None, namespaces: Sequence[str] = (),
            gone: Optional[Callable[[str], object]] = None):
  """Declares the names of a namespace.

  Args:
    package: the `__name__` of the module that is the namespace.
    base: TensorFlow's module of this namespace; None if TensorFlow no longer has the module.
    drop_ins: the names that come from tf1ps, by the package that exports them.
    namespaces: the namespaces below this namespace that are modules of this package.
    gone: looks up a name that TensorFlow no longer has. It returns a value, or raises an
      AttributeError that names the replacement, or raises `UnknownNameError`.

  Returns:
    The namespace's `__getattr__` and `__dir__`.
  """
  module = sys.modules[package]
  room_of = {name: room for room, names in (drop_ins or {}).items() for name in names}
  if not hasattr(module, "__path__"):
    module.__path__ = []  # Python asks a finder only below a package

  def find(name):
    if name in namespaces or "%s.%s" % (package, name) in _declared:
      return importlib.import_module("%s.%s" % (package, name))
    if name in room_of:
      return getattr(importlib.import_module("tf1ps." + room_of[name]), name)
    if hasattr(base, name):
      return getattr(base, name)
    below = submodule(base, name)
    if below is not None:
      return below
    if gone:
      return gone(name)
    raise AttributeError("module %r has no attribute %r" % (package, name))

  def get(name):
    if name == "__all__":
      return list_names()
    if name.startswith("__"):  # __version__, or a name that Python asks for
      return getattr(base, name)
    try:
      value = find(name)
    except UnknownNameError as error:
      near = difflib.get_close_matches(name, list_names(), 1, 0.85)
      raise AttributeError(
        "%s%s" % (error, " Did you mean %s?" % near[0] if near else "")) from None
    setattr(module, name, value)
    return value

  def list_names():
    own = [name for name, value in vars(module).items()
           if getattr(value, "__module__", None) == package]
    declared = [name[len(package) + 1:] for name in _declared if name.startswith(package + ".")]
    names = {*own, *room_of, *namespaces, *(name for name in declared if "." not in name),
             *(dir(base) if base else ())}
    return sorted(name for name in names if not name.startswith("_"))

  return get, list_names


def declare(package: str, make: Union[Callable, str]) -> None:
  """Declares a namespace that has no file.

  Args:
    package: the `__name__` of the namespace.
    make: a function that takes this name and returns the `__getattr__` and `__dir__`, as `overlay`
      does; or the name of another module, for which the namespace is a second name.
  """
  _declared[package] = make


def submodule(package: Optional[types.ModuleType], name: str) -> Optional[types.ModuleType]:
  """Imports a module below a package; returns None if the module does not exist."""
  if not hasattr(package, "__path__"):
    return None
  fullname = "%s.%s" % (package.__name__, name)
  try:
    return importlib.import_module(fullname)
  except ModuleNotFoundError as error:
    if error.name != fullname:
      raise
    return None


class _Finder(importlib.abc.MetaPathFinder):
  """Finds the modules below this package: its own files, else TensorFlow's module of the name."""

  def find_spec(self, fullname, path, target=None):
    if not fullname.startswith(_ROOM + "."):
      return None
    above, _, name = fullname.rpartition(".")
    parent = sys.modules[above]
    if parent.__name__ != above:  # the parent is TensorFlow's module: import the name below that
      return _alias(fullname, importlib.import_module("%s.%s" % (parent.__name__, name)))
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec is not None:
      return spec
    declared = _declared.get(fullname)
    if isinstance(declared, str):
      return _alias(fullname, importlib.import_module(declared))
    if declared:
      return importlib.machinery.ModuleSpec(fullname, _Declared(), is_package=True)
    try:
      value = getattr(parent, name)
    except AttributeError as error:
      raise ImportError(str(error), name=fullname) from None
    return _alias(fullname, value) if isinstance(value, types.ModuleType) else None


class _Declared(importlib.abc.Loader):
  """Makes a namespace that has no file."""

  def create_module(self, spec):
    return None

  def exec_module(self, module):
    module.__doc__ = "`tf%s`, as `tf1ps docs legacy` says." % module.__name__[len(_ROOM):]
    module.__getattr__, module.__dir__ = _declared[module.__name__](module.__name__)


class _Alias(importlib.abc.Loader):
  """Makes a second name for a module that is already imported."""

  def __init__(self, module):
    self._module = module

  def create_module(self, spec):
    return None

  def exec_module(self, module):
    sys.modules[module.__name__] = self._module  # the import returns the module in sys.modules


def _alias(fullname, module):
  return importlib.machinery.ModuleSpec(fullname, _Alias(module))


def install_finder() -> None:
  """Makes Python ask this module for the modules below this package."""
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
