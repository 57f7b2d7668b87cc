"""Which source files belong to Python's library or to an installed package."""

from __future__ import annotations

import contextlib
import csv
import functools
import glob
import os
import sys
import sysconfig
from typing import FrozenSet

_PYTHON = tuple(sysconfig.get_paths()[each] + os.sep for each in ("stdlib", "platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}


def is_installed_file(path: str) -> bool:
  """Whether a file belongs to Python's library or to an installed package.

  The folder of packages need not be that of this Python: PYTHONPATH or a .pth file may add another
  folder, and an environment may share the packages of the system. A package of
  `pip install --target` is known by the list of its files.
  """
  path = os.path.abspath(path)
  return (path.startswith(_PYTHON) or not _INSTALLED.isdisjoint(path.split(os.sep))
          or _is_listed(path))


def _is_listed(path: str) -> bool:
  """Whether a folder of sys.path has the list of an installed package's files, with this file."""
  folders = map(os.path.abspath, sys.path)
  return any(path in _listed_files(each) for each in folders if path.startswith(each + os.sep))


@functools.lru_cache(maxsize=None)
def _listed_files(folder: str) -> FrozenSet[str]:
  """Returns the files of the packages that were installed into a folder.

  SOURCES.txt does not count: that of an editable install lists the program's own files.
  """
  paths = set()
  for pattern in os.path.join("*.dist-info", "RECORD"), os.path.join(
      "*.egg-info", "installed-files.txt"):
    for name in glob.glob(os.path.join(glob.escape(folder), pattern)):
      start = folder if name.endswith("RECORD") else os.path.dirname(name)
      with contextlib.suppress(OSError, csv.Error), open(
          name, newline="", encoding="utf-8", errors="replace") as file:
        paths.update(os.path.normpath(os.path.join(start, row[0]))
                     for row in csv.reader(file) if row)
  return frozenset(paths)
