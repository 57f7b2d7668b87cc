"""Runs tf1ps's programs in processes of the tests, as their console scripts would."""
from __future__ import annotations

import os
import runpy
import sys

from tests import forked_interpreter
from tf1ps.cli import (
  evaluator,
  local,
  predict,
  ps,
  reset,
  run,
  ssh,
  status,
  task,
  top,
  worker,
)

_PROGRAMS = {"tf1ps-ps": ps, "tf1ps-worker": worker, "tf1ps-evaluator": evaluator,
             "tf1ps-predict": predict, "tf1ps-local": local, "tf1ps-reset": reset,
             "tf1ps-run": run, "tf1ps-ssh": ssh, "tf1ps-status": status, "tf1ps-top": top,
             "tf1ps-task": task}


def run_program(name, argv, folder):
  """Runs a program in a folder; returns its exit code."""
  os.chdir(str(folder))
  if name == "tf1ps-local":
    forked_interpreter.prepare()
  return _PROGRAMS[name].run(list(argv))


def run_file(path, argv, folder):
  """Runs a Python file in a folder, as `python path argv...` does."""
  os.chdir(str(folder))
  sys.argv = [path, *argv]
  runpy.run_path(path, run_name="__main__")
