"""Runs all tasks of a script on this machine, each in a separate process.

A script that is a task of a cluster takes its role and the cluster's addresses as arguments.
Called without arguments, the script can choose the addresses and start all of its tasks:

1. Each task is a fork of this process that calls the script's `main` with its own arguments. So
   TensorFlow is imported once. No server and no session may exist before the fork, because a fork
   does not copy their threads.
2. For each task, standard error has the command that starts this task by hand in another shell.
3. The lines of the first task appear immediately. The lines of another task follow when the tasks
   before it have ended, so that all lines are in the same order each time.
4. When a task fails, the others have some seconds to end by themselves. A signal to this process,
   such as Ctrl-C, is passed to all tasks, which then have the same time. A second signal ends the
   wait. Tasks that still run after the wait are killed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Callable, List, Optional

from tf1ps.cluster import SignalQueue
from tf1ps.compat import (
  ENDING_SIGNALS,
  EXIT_FAILED,
  TIMING,
  converted_files,
  remove_converted_files,
  signal_exit_code,
)
from tf1ps.launch import task_main

_is_task = False  # a process global: whether this process is a task of `run_together`


def run_together(main: Callable[[], Optional[int]], *argument_lists: List[str]) -> None:
  """Runs a script once for each list of arguments, all at the same time, and waits for all.

  Call it from the main thread, where signals arrive.

  Args:
    main: the script's function, which reads `sys.argv`.
    *argument_lists: lists of strings; each list has the arguments of a process. A user sees the
      lines of the first process as they come.

  Raises:
    ValueError: no list is given, or a list has elements that are not strings.
    RuntimeError: a task calls it, because `main` does not detect from its arguments which task it
      is.
    SystemExit: a task failed, and the code is its exit code; or this process got signal n, and the
      code is 128 + n. No task runs any more.
  """
  for arguments in argument_lists or [None]:
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
      raise ValueError("run_together needs lists of strings, got %r" % (arguments,))
  if _is_task:
    raise RuntimeError("the task with the arguments %r called run_together again: give each task "
                       "arguments that tell main which task it is" % (sys.argv[1:],))
  # Before the first task starts, because its lines on standard error could mix with these lines.
  sys.stderr.write("".join(
    "%d$ python %s\n" % (number, " ".join(map(shlex.quote, sys.argv[:1] + arguments)))
    for number, arguments in enumerate(argument_lists, 1)))
  sys.stderr.flush()
  tasks: List[Any] = []
  with SignalQueue() as signals:  # before the first task: a signal may come while they are started
    try:
      for arguments in argument_lists:
        tasks.append(_Task(main, arguments, tempfile.TemporaryFile() if tasks else None))
      _wait(tasks, signals)
    finally:
      codes = [task.end() for task in tasks]
    for task in tasks:
      task.show()
  failed = [code for code in codes if code]
  if signals.received or failed:
    sys.exit(signal_exit_code(signals.received[0]) if signals.received else failed[0])


def _wait(tasks, signals):
  """Waits for the ends of the tasks, and shows their output in order; returns at a limit."""
  shown, deadline = 0, None
  while shown < len(tasks):
    if not tasks[shown].is_running():
      tasks[shown].show()
      shown += 1
      continue
    signals.take()
    if deadline is None and (signals.received or any(
        not task.is_running() and task.end() for task in tasks)):
      deadline = time.monotonic() + TIMING.script_tasks_end_limit
      for task in tasks if signals.received else []:
        task.signal(signals.received[0])
    elif deadline is not None and (len(signals.received) > 1 or time.monotonic() > deadline):
      return
    time.sleep(TIMING.local_poll_interval)


class _Task:
  """A process, and the file for its output, if its output does not go to standard output."""

  def __init__(self, main, arguments, output):
    self._output, self._exit_code = output, None
    task_main.flush()
    parent = os.getpid()
    # A task starts with this process's handlers: its signals are blocked until it has its own.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
      self._pid = os.fork()
      if not self._pid:
        _become(main, arguments, output, parent)
    finally:
      signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)

  def is_running(self):
    if self._exit_code is None:
      pid, status = os.waitpid(self._pid, os.WNOHANG)
      if pid:
        self._exit_code = signal_exit_code(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (
          os.WEXITSTATUS(status))
    return self._exit_code is None

  def signal(self, number):
    if self.is_running():
      os.kill(self._pid, number)

  def show(self):
    """Copies its output to standard output, once."""
    if self._output is not None:
      sys.stdout.flush()
      self._output.seek(0)
      with os.fdopen(os.dup(1), "wb") as here:
        shutil.copyfileobj(self._output, here)
      self._output.close()
      self._output = None

  def end(self) -> int:
    """Kills the process if it still runs; returns its exit code, or 0 if it was killed here."""
    if not self.is_running():
      return self._exit_code
    os.kill(self._pid, signal.SIGKILL)
    os.waitpid(self._pid, 0)
    self._exit_code = 0
    return 0


def _become(main, arguments, output, parent):
  """Turns this process, just forked, into a task. Does not return."""
  global _is_task
  code, inherited = EXIT_FAILED, converted_files()
  try:
    _is_task = True
    os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, from the parent
    task_main.die_with_parent(parent)
    task_main.reset_inherited()
    if output is not None:
      os.dup2(output.fileno(), 1)
    sys.argv = sys.argv[:1] + arguments
    code = task_main.call(main)
  finally:
    remove_converted_files(inherited)
    os._exit(code)
