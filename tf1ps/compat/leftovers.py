"""Temporary files that name their process, so that none of a killed process stays.

SIGKILL leaves what a process has begun to write. The name PATH.HOST.PROCESS.tmp tells the next
process on the same machine whether the writer still lives.
"""

from __future__ import annotations

import glob
import os
import shutil
import socket


def temporary_path(path: str) -> str:
  """Returns a path beside `path` for this process to write to, and removes what others left there.

  Args:
    path: the file or directory that is going to be made. At a URL nothing is looked for: a store of
      objects shows no file that is not complete.
  """
  prefix = "%s.%s." % (path, socket.gethostname())
  if "://" not in path:
    for name in glob.glob(glob.escape(prefix) + "*.tmp"):
      process = name[len(prefix):-len(".tmp")]
      if process.isdigit() and (int(process) == os.getpid() or has_ended(int(process))):
        _remove(name)
  return "%s%d.tmp" % (prefix, os.getpid())


def has_ended(process: int) -> bool:
  """Whether no process of this machine has an id."""
  try:
    os.kill(process, 0)
  except ProcessLookupError:
    return True
  except OSError:  # another user's
    pass
  return False


def _remove(path):
  if os.path.isdir(path) and not os.path.islink(path):
    shutil.rmtree(path, ignore_errors=True)
    return
  try:
    os.remove(path)
  except OSError:
    pass
