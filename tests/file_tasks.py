"""Runs a Python file in a process of the tests, as `python FILE ARGS` would."""
from __future__ import annotations

import runpy
import sys


def run_file(path, *args):
  """Runs a file as the main module; returns its exit code."""
  sys.argv = [path] + list(args)
  try:
    runpy.run_path(path, run_name="__main__")
  except SystemExit as error:
    return error.code
  return 0
