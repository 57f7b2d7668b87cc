"""The advice for a path that is not there: the paths beside it that have similar names."""

from __future__ import annotations

import difflib
import glob
import os

_ALIKE = 0.7  # of difflib; shorter names have an ending in common alone


def near_path(path: str, ending: str = "") -> str:
  """Returns "; did you mean ...?" for a path that is not there, or "".

  Args:
    path: a file or directory, or a pattern of files. At a URL nothing is looked for.
    ending: that of the wanted files.
  """
  folder, name = os.path.split(path)
  below = []
  while folder and not os.path.isdir(folder):  # the mistake is in the name of a folder
    below.insert(0, name)
    folder, name = os.path.split(folder)
  try:
    there = [] if "://" in path else sorted(os.listdir(folder or os.curdir))
  except OSError:
    there = []
  near = [os.path.join(folder, each, *below)
          for each in difflib.get_close_matches(name, there, 3, _ALIKE)]
  near = [each for each in near if each.endswith(ending) and (
    os.path.exists(each) or glob.glob(each))]
  return "; did you mean %s?" % " or ".join(near) if near else ""
