"""Runs all tasks of one script on this machine, each in a process of its own.

A script that is one task of a cluster takes its role and the cluster's addresses as arguments.
Called without arguments, it can choose the addresses and start all of its tasks:

1. Each task is a fork of this process that calls the script's `main` with arguments of its own. So
   TensorFlow is imported once. No server and no session may exist yet: a fork has no threads.
2. Standard error has the command that starts the same task by hand in a shell of its own.
3. The lines of the first task appear at once. Those of the others follow when the tasks before them
   have ended, so that they are in the same order each time.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from typing import Callable, List, Optional

from tf1ps.launch.ports import find_free_ports
from tf1ps.launch.task_main import die_with_parent, flush

_GRACE = 10.0  # seconds that the other tasks have to end when one has failed
_PAUSE = threading.Event()  # never set: it waits between two looks


def find_free_addresses(n: int) -> List[str]:
  """Returns `n` addresses 127.0.0.1:PORT that no process on this machine uses.

  Args:
    n: int, 0 or more.

  Raises:
    ValueError, RuntimeError: as `find_free_ports` does.
  """
  return ["127.0.0.1:%d" % port for port in find_free_ports(n)]


def run_together(main: Callable[[], Optional[int]], *argument_lists: List[str]) -> None:
  """Runs a script once for each list of arguments, all at the same time, and waits for all.

  Args:
    main: the script's function, which reads `sys.argv`.
    *argument_lists: lists of strings, the arguments of one process each. The first process should
      be one whose lines a user wants to see as they come.

  Raises:
    ValueError: if there is no list, or one has other elements than strings.
    SystemExit: with the exit code of a task that failed. The other tasks are ended before.
  """
  for arguments in argument_lists or [None]:
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
      raise ValueError("run_together needs lists of strings, not %r." % (arguments,))
  tasks = []
  try:
    for number, arguments in enumerate(argument_lists, 1):
      print("%d$ python %s" % (number, " ".join(map(shlex.quote, sys.argv[:1] + arguments))),
            file=sys.stderr)
      tasks.append(_Task(main, arguments, tempfile.TemporaryFile() if tasks else None))
    until = [None]  # when the others are ended, once one has failed
    for task in tasks:
      while task.is_running() and not _failed_long_ago(tasks, until):
        _PAUSE.wait(0.02)
      task.show()
  finally:
    for task in tasks:
      task.kill()
  codes = [task.exit_code for task in tasks if task.has_failed]
  if codes:
    sys.exit(codes[0])


class _Task(object):
  """One process, and the file for its output, if it does not go to standard output."""

  def __init__(self, main, arguments, output):
    self.exit_code = None
    self.has_failed = False  # by itself
    self._output = output
    parent = os.getpid()
    flush()
    self._pid = os.fork()
    if not self._pid:
      _become(main, arguments, output, parent)

  def is_running(self):
    if self.exit_code is None:
      pid, status = os.waitpid(self._pid, os.WNOHANG)
      if pid:
        self.exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else (
          os.WEXITSTATUS(status))
        self.has_failed = bool(self.exit_code)
    return self.exit_code is None

  def show(self):
    """Copies its output to standard output."""
    if self._output:
      self._output.seek(0)
      sys.stdout.flush()
      shutil.copyfileobj(self._output, os.fdopen(os.dup(1), "wb"))
      self._output.close()
      self._output = None

  def kill(self):
    if self.is_running():
      os.kill(self._pid, signal.SIGKILL)
      os.waitpid(self._pid, 0)
      self.exit_code = 128 + signal.SIGKILL


def _failed_long_ago(tasks, until):
  """Says whether a task has failed and the others have had their time."""
  if until[0] is None and any([not task.is_running() and task.has_failed for task in tasks]):
    until[0] = time.monotonic() + _GRACE
  return until[0] is not None and time.monotonic() > until[0]


def _become(main, arguments, output, parent):
  """Turns this process, just forked, into a task. Does not return."""
  code = 1
  try:
    die_with_parent(parent)
    if output:
      os.dup2(output.fileno(), 1)
    sys.argv = sys.argv[:1] + arguments
    code = main() or 0
  except SystemExit as error:
    code = error.code if isinstance(error.code, int) else int(error.code is not None)
    if code and not isinstance(error.code, int):
      print(error.code, file=sys.stderr)
  except BaseException:
    traceback.print_exc()
  finally:
    flush()
    os._exit(code & 0xFF)
