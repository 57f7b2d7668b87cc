"""Runs a program, and compiles the program's own files in its own way.

1. A `Compiler` turns the source of an own file into code: it may convert Python 2, it replaces
   imports, and it keeps the file's name and lines, so that a traceback shows the program's text.
2. `answer_imports` puts a finder before Python's own. It finds the same modules, and gives the
   program's own modules a loader that compiles by the `Compiler` and reads and writes no bytecode.
3. `run_code` executes the program as the module `__main__`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Callable, List, NamedTuple, Optional, Tuple

from tf1ps.compat import Error, quiet_import
from tf1ps.runner.files import is_own_file
from tf1ps.runner.imports import Replacement, replace_imports, replace_numpy
from tf1ps.runner.python2 import Python2


class ProgramNotFoundError(Error, ValueError):
  """The module does not exist, or has no source."""


class Parsed(NamedTuple):
  """A file as it will run."""

  tree: ast.Module
  replaced: List[Replacement]  # by line
  remarks: List[Tuple[int, str]]  # the line, and the difference to Python 2 there


class Compiler:
  """Compiles the program's own files."""

  def __init__(self, python2: Optional[Python2] = None,
               remark: Callable[[str, int, str], None] = lambda path, line, text: None):
    """Makes a compiler.

    Args:
      python2: converts Python 2; None: the files are Python 3.
      remark: called with the path, the line and the text of each remark.
    """
    self._python2 = python2
    self._remark = remark

  def parse(self, data: bytes, path: str) -> Parsed:
    """Parses a file.

    Args:
      data: the content of the file.
      path: the name of the file, for errors.

    Raises:
      SyntaxError: the file is not Python 3, and could not be converted.
    """
    text = _decode(data) if self._python2 is not None else None
    if text is None:
      tree = _parse(data, path)
      return Parsed(tree, _replace(tree), [])
    fixed = self._python2.convert(text)
    tree = _parse(fixed.text, path)
    _renumber(tree, fixed.lines)
    return Parsed(tree, sorted(fixed.changed + _replace(tree)), fixed.remarks)

  def compile(self, data: bytes, path: str) -> types.CodeType:
    """Compiles a file, and passes on the remarks; raises SyntaxError."""
    parsed = self.parse(data, path)
    for line, text in parsed.remarks:
      self._remark(path, line, text)
    return compile(parsed.tree, path, "exec", dont_inherit=True)

  def compile_file(self, path: str) -> types.CodeType:
    """Compiles the file at a path; raises SyntaxError."""
    with open(path, "rb") as file:
      return self.compile(file.read(), path)


def _parse(source, path: str) -> ast.Module:
  """Parses without a frame of the module ast, which a traceback would show."""
  return compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)


def _replace(tree: ast.Module) -> List[Replacement]:
  return sorted(replace_imports(tree) + replace_numpy(tree))


def _decode(data: bytes) -> Optional[str]:
  """Returns source as text; None if its encoding is wrong, which Python reports later."""
  try:
    return importlib.util.decode_source(data)
  except (SyntaxError, UnicodeDecodeError):
    return None


def _renumber(tree: ast.Module, lines: List[int]) -> None:
  """Gives each node the line that its text had before the conversion."""
  for node in ast.walk(tree):
    for name in ("lineno", "end_lineno"):
      if getattr(node, name, None) is not None:
        setattr(node, name, lines[getattr(node, name) - 1])


class _Loader(importlib.machinery.SourceFileLoader):
  def __init__(self, name: str, path: str, compiler: Compiler):
    super().__init__(name, path)
    self._compiler = compiler

  def get_code(self, fullname):
    path = self.get_filename(fullname)
    return self._compiler.compile(self.get_data(path), path)


class _TensorflowLoader(importlib.machinery.SourceFileLoader):
  """Loads TensorFlow without its messages, for a program or a library that imports it first."""

  def exec_module(self, module):
    with quiet_import():
      super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
  def __init__(self, compiler: Compiler):
    self._compiler = compiler

  def find_spec(self, fullname, path=None, target=None):
    spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
    loader = getattr(spec, "loader", None)
    if type(loader) is not importlib.machinery.SourceFileLoader:
      return None
    if fullname == "tensorflow":
      spec.loader = _TensorflowLoader(fullname, loader.path)
    elif is_own_file(loader.path):
      spec.loader = _Loader(fullname, loader.path, self._compiler)
    else:
      return None
    return spec


@contextlib.contextmanager
def answer_imports(compiler: Compiler):
  """Compiles the own modules that are imported within the block by a compiler."""
  finder = _Finder(compiler)
  sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), finder)
  try:
    yield
  finally:
    sys.meta_path.remove(finder)


def code_of_module(name: str, compiler: Compiler):
  """Finds a module, or a package's `__main__`, as `python -m` does, and compiles it.

  Returns:
    The code and the module's spec.

  Raises:
    ProgramNotFoundError: the module does not exist, or has no source.
  """
  try:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
      spec = importlib.util.find_spec(name + ".__main__")
  except ModuleNotFoundError as error:
    if not (name + ".").startswith("%s." % error.name):  # another module, which the package imports
      raise
    spec = None
  if spec is None or not spec.has_location or not os.path.isfile(spec.origin):
    raise ProgramNotFoundError("the module %s does not exist, or its package lacks __main__" % name)
  return compiler.compile_file(spec.origin), spec


def run_code(code: types.CodeType, path: str, spec=None) -> None:
  """Executes a program as `__main__`.

  Args:
    code: the code of the program.
    path: the path of its file.
    spec: the spec of its module, for `python -m`.
  """
  module = types.ModuleType("__main__")
  module.__file__, module.__spec__ = path, spec
  module.__package__ = spec.parent if spec else None
  module.__builtins__ = __builtins__
  if spec:
    module.__loader__ = spec.loader
  sys.modules["__main__"] = module
  exec(code, vars(module))
