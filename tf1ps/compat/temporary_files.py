"""Temporary files and directories that name their process, so that those of a killed process go.

SIGKILL leaves what a process has begun to write. The name PATH.IDENTITY.tmp tells the next process
whether the writer has ended (process_identity.py).
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from typing import Iterator, List

from tf1ps.compat.process_identity import has_ended, own_identity

_KEPT = "kept"  # a file in a directory that is to stay


def temporary_path(path: str) -> str:
  """Returns a path beside `path` for this process to write to, and removes what others left there.

  Args:
    path: the file or directory that is going to be made. At a URL nothing is looked for: a store of
      objects shows no file that is not complete.
  """
  if "://" not in path:
    for name in glob.glob(glob.escape(path) + ".*.tmp"):
      writer = name[len(path) + 1:-len(".tmp")]
      if writer == own_identity() or has_ended(writer):
        _remove(name)
  return "%s.%s.tmp" % (path, own_identity())


def make_directory(purpose: str) -> str:
  """Makes a temporary directory for this process; removes those of processes that have ended.

  Args:
    purpose: a word for its name, such as "model".
  """
  for name in _directories("*"):
    if _has_ended(name) and not os.path.exists(os.path.join(name, _KEPT)):
      _remove(name)
  return tempfile.mkdtemp(".%s.tmp" % own_identity(), "tf1ps-%s-" % purpose)


def find_directories(purpose: str) -> List[str]:
  """Returns the directories of `make_directory` of this user's processes that have not ended."""
  return [name for name in _directories(purpose) if _is_own(name) and not _has_ended(name)]


def _directories(purpose):
  return glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), "tf1ps-%s-*.*.tmp" % purpose))


def _is_own(name):
  try:
    return os.stat(name).st_uid == os.getuid()
  except OSError:  # it has gone
    return False


def _has_ended(name):
  return has_ended(os.path.basename(name).partition(".")[2][:-len(".tmp")])


def keep_directory(path: str) -> None:
  """Keeps a directory of `make_directory` beyond the end of this process."""
  with open(os.path.join(path, _KEPT), "w"):
    pass


@contextlib.contextmanager
def temporary_directory(purpose: str) -> Iterator[str]:
  """Yields a directory of `make_directory`, and removes it at the end."""
  path = make_directory(purpose)
  try:
    yield path
  finally:
    shutil.rmtree(path, ignore_errors=True)


def _remove(path):
  if os.path.isdir(path) and not os.path.islink(path):
    shutil.rmtree(path, ignore_errors=True)
    return
  try:
    os.remove(path)
  except OSError:
    pass
