"""Temporary files and directories that name their process, so that none of a killed one stays.

SIGKILL leaves what a process has begun to write. The name PATH.HOST.PROCESS.tmp tells the next
process on the same machine whether the writer still lives.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
import tempfile
from typing import Iterator, Optional

_KEPT = "kept"  # a file in a directory that is to stay


def temporary_path(path: str) -> str:
  """Returns a path beside `path` for this process to write to, and removes what others left there.

  Args:
    path: the file or directory that is going to be made. At a URL nothing is looked for: a store of
      objects shows no file that is not complete.
  """
  prefix = "%s.%s." % (path, socket.gethostname())
  if "://" not in path:
    for name in glob.glob(glob.escape(prefix) + "*.tmp"):
      process = _process_of(name)
      if process is not None and (process == os.getpid() or has_ended(process)):
        _remove(name)
  return "%s%d.tmp" % (prefix, os.getpid())


def make_directory(purpose: str) -> str:
  """Makes a directory for this process in the system's temporary one; removes what others left.

  Args:
    purpose: a word for its name, such as "model".
  """
  host = socket.gethostname()
  left = os.path.join(glob.escape(tempfile.gettempdir()), "tf1ps-*.%s.*.tmp" % glob.escape(host))
  for name in glob.glob(left):
    process, is_kept = _process_of(name), os.path.exists(os.path.join(name, _KEPT))
    if process is not None and has_ended(process) and not is_kept:
      _remove(name)
  return tempfile.mkdtemp(".%s.%d.tmp" % (host, os.getpid()), "tf1ps-%s-" % purpose)


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


def has_ended(process: int) -> bool:
  """Whether no process of this machine has an id."""
  try:
    os.kill(process, 0)
  except ProcessLookupError:
    return True
  except OSError:  # another user's
    pass
  return False


def _process_of(path: str) -> Optional[int]:
  """Returns the process in a name, if there is one."""
  process = path.split(".")[-2]
  return int(process) if process.isdigit() else None


def _remove(path):
  if os.path.isdir(path) and not os.path.islink(path):
    shutil.rmtree(path, ignore_errors=True)
    return
  try:
    os.remove(path)
  except OSError:
    pass
