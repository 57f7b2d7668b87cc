"""The files that TensorFlow writes for functions that AutoGraph converts, such as those of `map`.

AutoGraph writes the source of a converted function into the directory for temporary files, imports
it, and removes the file by an `atexit` function. A process that leaves by `os._exit` calls no such
function, so each start of a task would leave files there. The bytecode of the file, which Python's
import writes, stays even after an ordinary end.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from typing import Collection, Set

# The function that such a module has: of TensorFlow 2, of 1.15. AutoGraph has no public list.
_FACTORIES = ("outer_factory", "create_converted_entity_factory")


def converted_files() -> Set[str]:
  """Returns the paths of the files of the functions that this process has converted."""
  try:
    folder, found = tempfile.gettempdir(), set()
  except OSError:  # no directory for temporary files can be written
    return set()
  for module in list(sys.modules.values()):
    names = getattr(module, "__dict__", {})
    path = names.get("__file__")
    if path and os.path.dirname(path) == folder and any(name in names for name in _FACTORIES):
      found.add(path)
  return found


def remove_converted_files(kept: Collection[str] = ()) -> None:
  """Removes the files of this process's converted functions, just before it leaves.

  `kept` has the files of the process that this process was forked from.
  """
  for path in converted_files().difference(kept):
    for name in (path, importlib.util.cache_from_source(path)):
      try:
        os.remove(name)
      except OSError:
        pass  # Python wrote no bytecode, or another process has removed the file
