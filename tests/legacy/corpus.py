"""Jobs of the legacy programs: a ps and two workers, by tf1ps-run or with the one import."""
from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
import time
import traceback

from benchmarks import legacy_programs

LIMIT = 120.0  # seconds; three programs start at once


def run_task(way, path, argv):
  """Runs one task's program in this process, as the command would; returns the exit code."""
  if way == "run":
    from tf1ps.cli import run
    return run.run([path, *argv])
  sys.path[0] = os.path.dirname(path)
  sys.argv = [path, *argv]
  code = 0
  try:
    runpy.run_path(path, run_name="__main__")
  except SystemExit as error:
    code = error.code or 0
  except BaseException as error:
    traceback.print_exc()
    sys.last_value, code = error, 1
  # What Python does at its end, and a forked process would not.
  threading._shutdown()
  atexit._run_exitfuncs()
  return code


class Job(object):
  """The processes of one job.

  Attributes:
    tasks: by name, such as "worker 0".
  """

  def __init__(self, start, name, way, folder, *argv):
    self.program = legacy_programs.PROGRAMS[name]
    self._start, self._way, self._folder = start, way, str(folder)
    with open(legacy_programs.path_of(self.program)) as file:
      source = file.read()
    self._path = os.path.join(self._folder, name + ".py")
    with open(self._path, "w") as file:
      file.write(source if way == "run" else legacy_programs.with_our_imports(source))
    self._arguments = legacy_programs.arguments(self.program, self._folder)
    self._environments = legacy_programs.environments(self.program, self._arguments)
    self._more = list(argv)
    self.tasks = {}
    for task in self._arguments:
      self.start(task)

  def start(self, name):
    """Starts a task, the first time or anew."""
    self.tasks[name] = self._start(
      name, run_task, self._way, self._path, self._arguments[name] + self._more,
      **self._environments[name])
    return self.tasks[name]

  def end(self):
    """Waits until all tasks have ended; returns what is left."""
    until = time.monotonic() + LIMIT
    codes = {name: task.wait(max(until - time.monotonic(), 1.0))
             for name, task in sorted(self.tasks.items(), reverse=True)}  # the ps is the last
    said = {name: task.output for name, task in self.tasks.items()}
    return legacy_programs.Outcome(
      codes, said, legacy_programs.last_saved(os.path.join(self._folder, legacy_programs.MODEL)))


def told(outcome):
  """All that the tasks have said, for a message."""
  return "\n".join("--- %s, exit %s\n%s" % (name, outcome.codes[name], text)
                   for name, text in outcome.said.items())
