"""Which files are a program's own, and which of them a file imports."""

from __future__ import annotations

import ast
import os
import sys
from typing import Iterator, List, Optional

from tf1ps.compat import is_installed_file

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_own_file(path: str) -> bool:
  """Whether a source file belongs to the program: it is not Python's, not installed, not ours.

  A program often lies in several folders: its script in one, its models in another that
  PYTHONPATH or the script names. The same variable leads to packages of `pip install --target`.
  """
  path = os.path.abspath(path)
  return (path.endswith(".py") and not path.startswith(_OURS + os.sep)
          and not is_installed_file(path))


def find_own_files(paths: List[str], parse) -> List[str]:
  """Finds the program's own files that files import, directly or by others; runs none.

  Args:
    paths: the files that the program starts with.
    parse: makes the `ast.Module` of the file at a path, or None if it cannot be parsed.

  Returns:
    Their paths, the given ones first.
  """
  found, waiting = [], list(paths)
  while waiting:
    file = waiting.pop(0)
    if file not in found:
      found.append(file)
      tree = parse(file)
      imported = [] if tree is None else _imported(tree, file)
      waiting += [each for each in imported if is_own_file(each)]
  return found


def files_of_module(name: str) -> List[str]:
  """Returns the files that `python -m` runs: those of the packages, then the module's."""
  parts = name.split(".")
  return list(_files_of([*parts, "__main__"], sys.path))


def _imported(tree: ast.Module, file: str) -> Iterator[str]:
  """Yields the source files that a file may import: the packages on the way and the module."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      for alias in node.names:
        yield from _files_of(alias.name.split("."), sys.path)
    elif isinstance(node, ast.ImportFrom):
      folder = os.path.dirname(file)
      for _ in range(node.level - 1):
        folder = os.path.dirname(folder)
      parts = node.module.split(".") if node.module else []
      for alias in node.names:
        yield from _files_of([*parts, alias.name], [folder] if node.level else sys.path)


def _files_of(parts: List[str], folders: List[str]) -> Iterator[str]:
  """Yields the files of a dotted name, of whose last part it is unknown whether it is a module."""
  for folder in folders:
    place, files = folder or os.curdir, []
    for part in parts:
      place = os.path.join(place, part)
      file = _first_file(place + ".py", os.path.join(place, "__init__.py"))
      files += [file] if file else []
    if files:
      yield from map(os.path.abspath, files)
      return


def _first_file(*paths: str) -> Optional[str]:
  return next(filter(os.path.isfile, paths), None)
