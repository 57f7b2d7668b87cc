"""The process that imports TensorFlow once and forks a task for each request.

1. The launcher starts it (`fork_server.ForkServer`) in a separate Unix session: a terminal's Ctrl-C
   reaches neither this process nor the tasks. It imports the launcher's modules and sends "ready".
2. For each "start" it forks a task (`task_main`), whose output goes into the pipe that came with
   the request.
3. When a task has ended, it kills the remainder of the task's process group and sends the exit
   code.
4. When the launcher closes the connection or has ended, the process kills every group and leaves.

The process starts no threads itself, never uses the modules that it imported, and runs only its own
`__main__`. (multiprocessing's fork server would import the launcher's main module again into every
task, and would not end the process groups of its children.)

Messages to it: ("start", env, pickle of (function, args)), followed by a file descriptor;
("signal", process id, signal). Messages from it: ("ready",) or ("refused", text); then for each
task ("started", process id) or ("not started", text); ("ended", process id, exit code). The exit
code is negative if a signal ended the task.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing.connection
import multiprocessing.reduction
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings

from tf1ps.compat import TIMING
from tf1ps.launch import task_main

_FOR_TASKS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main(connection, launcher_pipe, launcher, modules, quiet, argv):
  """Serves the launcher, and never returns: the process leaves from here.

  Args:
    connection: file descriptor of the connection to the launcher.
    launcher_pipe: file descriptor, the read end of the pipe that `task_main.watch_launcher` reads.
    launcher: the launcher's process id.
    modules: names of the modules to import.
    quiet: whether the output of the imports is held back unless they fail.
    argv: the launcher's `sys.argv`; programs may look at it.
  """
  connection = multiprocessing.connection.Connection(connection)
  # A user may signal all processes of a job together. The fork server must stay, because its tasks
  # would die with it. The signals are blocked and not ignored, so that no task misses a signal
  # before it has its own handlers.
  signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_TASKS)
  # An import takes seconds, during which this process does not read the connection.
  task_main.die_with_parent(launcher, signal.SIGKILL)
  sys.argv[:] = argv
  task_main.show_title("tf1ps-local: forks the tasks")  # now, while there is only one thread
  task_main.prepare_streams()
  try:
    _import_modules(connection, modules, quiet)
    # From now on there may be tasks to kill, so a signal continues a stopped fork server.
    task_main.die_with_parent(launcher, signal.SIGCONT)
    _Server(connection, launcher_pipe).serve()
  except (EOFError, ConnectionError):
    pass  # the launcher has ended
  except BaseException:
    traceback.print_exc()
  finally:
    os._exit(0)


def _import_modules(connection, modules, quiet):
  """Imports the modules and reports to the launcher; an import that fails ends the process.

  The modules stay until the end. Python's garbage collector skips their objects, here and in the
  tasks, where each collection would copy the memory that the tasks share.
  """
  gc.disable()
  try:
    noise = tempfile.TemporaryFile()
  except OSError:  # no directory for temporary files can be written
    noise = open(os.devnull, "w+b")
  kept = [os.dup(1), os.dup(2)] if quiet else []
  try:
    for number in range(1, 1 + len(kept)):
      os.dup2(noise.fileno(), number)
    for name in modules:
      importlib.import_module(name)
    task_main.flush()
  except BaseException:
    task_main.flush()
    noise.seek(0)
    text = noise.read().decode("utf-8", "replace") + traceback.format_exc()
    connection.send(("refused", text))
    os._exit(1)
  finally:
    for number, descriptor in enumerate(kept, 1):
      os.dup2(descriptor, number)
      os.close(descriptor)
    noise.close()
  gc.freeze()
  gc.enable()
  connection.send(("ready",))


class _Server:
  def __init__(self, connection, launcher_pipe):
    self._connection, self._launcher_pipe = connection, launcher_pipe
    self._running = set()  # the process ids of the running tasks
    self._wake_read, self._wake_write = os.pipe()

  def serve(self):
    """Serves until the launcher closes the connection; then kills the remaining tasks."""
    for end in (self._wake_read, self._wake_write):
      os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(self._wake_write)
    # Python 3.12 warns of forks beside threads; the threads of TensorFlow's import do no harm.
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    try:
      while True:
        ready = multiprocessing.connection.wait([self._connection, self._wake_read])
        if self._wake_read in ready:
          os.read(self._wake_read, 4096)
          self._report_ended()
        if self._connection in ready:
          self._handle(self._connection.recv())
    finally:
      self._kill_all()

  def _handle(self, request):
    if request[0] == "start":
      _, env, payload = request
      output = multiprocessing.reduction.recv_handle(self._connection)
      try:
        pid = self._fork(output, env, payload)
      except OSError as error:
        self._connection.send(("not started", str(error)))
        return
      finally:
        os.close(output)
      self._running.add(pid)
      self._connection.send(("started", pid))
    elif request[1] in self._running:
      _signal_group(*request[1:])

  def _fork(self, output, env, payload):
    """Forks a task; returns its process id. In the child it does not return."""
    task_main.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
      try:
        os.setpgid(pid, pid)  # the child also calls it; the order does not matter
      except OSError:
        pass
      return pid
    try:
      signal.set_wakeup_fd(-1)
      signal.signal(signal.SIGCHLD, signal.SIG_DFL)
      self._connection.close()
      os.close(self._wake_read)
      os.close(self._wake_write)
    finally:
      task_main.become_task(parent, self._launcher_pipe, output, env, payload)

  def _report_ended(self):
    """Reports each task that ended, after killing the remainder of its process group."""
    for pid in list(self._running):
      ended, status = os.waitpid(pid, os.WNOHANG)
      if ended:
        _signal_group(pid, signal.SIGKILL)
        self._running.remove(pid)
        self._connection.send(("ended", pid, -os.WTERMSIG(status) if os.WIFSIGNALED(status)
                               else os.WEXITSTATUS(status)))

  def _kill_all(self):
    for pid in self._running:
      _signal_group(pid, signal.SIGKILL)
    end = time.monotonic() + TIMING.fork_server_kill_limit
    while self._running and time.monotonic() < end:
      for pid in list(self._running):
        if os.waitpid(pid, os.WNOHANG)[0]:
          self._running.remove(pid)
      time.sleep(TIMING.first_poll_interval)


def _signal_group(pid, number):
  """Sends a signal to a process group, unless the group has ended."""
  try:
    os.killpg(pid, number)
    if number == signal.SIGTERM or number == signal.SIGINT:
      os.killpg(pid, signal.SIGCONT)  # a stopped process could not react
  except (ProcessLookupError, PermissionError):
    pass
