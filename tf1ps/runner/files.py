"""A program's own files, and the files that they import."""

from __future__ import annotations

import ast
import os
import sys
from typing import Iterator, List

from tf1ps.compat import is_installed_file

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def is_own_file(path: str) -> bool:
  """Whether a source file belongs to the program: it is not Python's, not installed, not ours.

  A program often lies in several folders: its script in a folder, its models in another, which
  PYTHONPATH or the script names. PYTHONPATH also names packages of `pip install --target`.
  """
  path = os.path.abspath(path)
  return (path.endswith(".py") and not path.startswith(_OURS + os.sep)
          and not is_installed_file(path))


def find_own_files(paths: List[str], parse) -> List[str]:
  """Finds the program's own files that files import, directly or by others; runs nothing.

  Args:
    paths: the files that the program starts with.
    parse: makes the `ast.Module` of the file at a path, or None if it cannot be parsed.

  Returns:
    The given paths, and then the paths of these files.
  """
  files, waiting = [], list(paths)
  while waiting:
    file = waiting.pop(0)
    if file not in files:
      files.append(file)
      tree = parse(file)
      imported = [] if tree is None else _imported(tree, file)
      waiting += filter(is_own_file, imported)
  return files


def files_of_module(name: str) -> List[str]:
  """Returns the files that `python -m` runs: the files of the packages, then the module's."""
  parts = name.split(".")
  return list(_files_of([*parts, "__main__"], sys.path))


def _imported(tree: ast.Module, file: str) -> Iterator[str]:
  """Yields the source files that a file may import: modules, and the packages round them."""
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
  """Yields the files of a dotted name, whose last part may be a module or a name in a module."""
  for folder in folders:
    place, files = folder or os.curdir, []
    for part in parts:
      place = os.path.join(place, part)
      candidates = (place + ".py", os.path.join(place, "__init__.py"))
      files += list(filter(os.path.isfile, candidates))[:1]
    if files:
      yield from map(os.path.abspath, files)
      return
