"""Starts tasks as forks of one process; this is the launcher's side of it.

Order of use:

1. `ForkServer(preload)` starts one process that imports TensorFlow (`fork_server_main`
   tells what happens there); `take()` until it is `ready`.
2. `start_task(task)` has it fork a process, and returns a `TaskProcess`.
3. `take()` notes which of them have ended. The server has a `fileno()`, so that
   `multiprocessing.connection.wait([server, ...], limit)` waits for news of it beside others.
4. `signal_task` signals a task with everything that it has started.
5. `close()`, or the end of the `with` block, kills what still runs and ends the fork server.

Nothing outlives the launcher, however it ends: see `lifeline`.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import os
import signal
import subprocess
import sys
import time
from typing import List, Optional, Sequence

from tf1ps.compat import TIMING, Error
from tf1ps.launch import tasks

_START = ("import sys; sys.path[:] = %r; from tf1ps.launch import fork_server_main; "
          "fork_server_main.main(%d, %d, %d, %r, %r, %r)")


class PreloadError(Error, RuntimeError):
  """A module could not be imported by the fork server; the text has the traceback."""


class ForkServerLost(Error, RuntimeError):
  """The fork server has ended by itself; its tasks die with it."""


class ForkServer(object):
  """Starts tasks as forks of one process that has imported `preload`."""

  def __init__(self, preload: Sequence[str] = (), quiet: bool = True):
    """Starts the server process, which begins to import.

    To be called in a thread that lives on, such as the main thread (see `die_with_parent`).

    Args:
      preload: names of the modules that it imports: "tensorflow.compat.v1".
      quiet: keep back what these imports print, unless one of them fails.
    """
    if isinstance(preload, str):
      raise TypeError("preload is a list of modules' names, not the string %r." % preload)
    self.ready = False
    # How long the imports took, in seconds; None before they are done.
    self.import_seconds: Optional[float] = None
    # The tasks that have ended, the first one first.
    self.ended: List[tasks.TaskProcess] = []
    self._processes = {}  # Number, in order of their start, to TaskProcess.
    self._connection, far_end = multiprocessing.Pipe()
    lifeline_read, self._lifeline = os.pipe()
    path = [entry for entry in sys.path if isinstance(entry, str)]
    code = _START % (path, far_end.fileno(), lifeline_read, os.getpid(), list(preload),
                     bool(quiet), list(sys.argv))
    try:
      self._server = subprocess.Popen(
          [sys.executable, "-c", code], stdin=subprocess.DEVNULL, start_new_session=True,
          pass_fds=(far_end.fileno(), lifeline_read))
    except BaseException:
      self._connection.close()
      os.close(self._lifeline)
      raise
    finally:
      far_end.close()
      os.close(lifeline_read)

  def __enter__(self) -> ForkServer:
    return self

  def __exit__(self, *unused):
    self.close()

  @property
  def pid(self) -> int:
    """The server's process id."""
    return self._server.pid

  def fileno(self) -> int:
    """The file descriptor to wait on; then call `take`."""
    return self._connection.fileno()

  def start_task(self, task: tasks.LocalTask) -> tasks.TaskProcess:
    """Starts a task; waits until the server is ready, and for the fork.

    Args:
      task: a `LocalTask`.

    Returns:
      Its `TaskProcess`.

    Raises:
      ValueError: if another process could not find the function or load the arguments.
      PreloadError, ForkServerLost: see there.
      OSError: if the machine has no room for another process.
    """
    payload = tasks.pickle_task(task)
    while not self.ready:
      self._receive(None)
    number = len(self._processes)
    read_end, write_end = os.pipe()
    try:
      self._send(("start", number, dict(task.env), payload), write_end)
      answer = None
      end = time.time() + TIMING.fork_limit
      while answer is None:
        if time.time() > end:
          raise ForkServerLost("The fork server (process %d) did not start %s within %g s." % (
              self.pid, task.name, TIMING.fork_limit))
        answer = self._receive(1.0)
      if answer[0] == "not started":
        raise OSError("%s could not be started: %s" % (task.name, answer[2]))
    except BaseException:
      os.close(read_end)
      raise
    finally:
      os.close(write_end)
    self._processes[number] = tasks.TaskProcess(task.name, answer[2], read_end)
    return self._processes[number]

  def take(self) -> None:
    """Notes what the server has told since: `ready`, and the exit codes of ended tasks.

    Raises:
      PreloadError, ForkServerLost: see there.
    """
    while self._poll(0):
      self._receive(0)

  def signal_task(self, process: tasks.TaskProcess, number: int) -> None:
    """Sends a signal to a task and all of its process group; none to one that has ended."""
    if process.exit_code is None:
      for key, known in self._processes.items():
        if known is process:
          self._send(("signal", key, int(number)))

  def close(self) -> None:
    """Kills every task that still runs and ends the server. To be called once or more."""
    if self._lifeline is None:
      return
    os.close(self._lifeline)
    self._lifeline = None
    self._connection.close()
    if not self.ready:
      self._server.kill()  # It would see the closed connection only after its imports.
    self._server.send_signal(signal.SIGCONT)  # A stopped one would not see it at all.
    try:
      self._server.wait(TIMING.fork_server_end_limit)
    except subprocess.TimeoutExpired:
      self._server.kill()
      self._server.wait(TIMING.fork_server_end_limit)

  def _send(self, message, descriptor=None):
    try:
      self._connection.send(message)
      if descriptor is not None:
        multiprocessing.reduction.send_handle(self._connection, descriptor, self.pid)
    except OSError:
      self._lost()

  def _poll(self, limit):
    try:
      return self._connection.poll(limit)
    except (EOFError, OSError):
      self._lost()

  def _receive(self, limit):
    """Takes one message of the server, if one comes within `limit` seconds.

    Returns:
      ("started", ...) or ("not started", ...) if it is one of these, else None.
    """
    if not self._poll(limit):
      return None
    try:
      message = self._connection.recv()
    except (EOFError, OSError):
      self._lost()
    if message[0] == "ready":
      self.ready = True
      self.import_seconds = message[1]
    elif message[0] == "refused":
      raise PreloadError(message[1])
    elif message[0] == "ended":
      self._processes[message[1]].exit_code = message[2]
      self.ended.append(self._processes[message[1]])
    else:
      return message
    return None

  def _lost(self):
    """Kills what the server's tasks have left behind: nobody else does it any more."""
    for process in self._processes.values():
      if process.exit_code is None:
        try:
          os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
          pass
    raise ForkServerLost(
        "The fork server (process %d), which starts and holds all tasks, is gone." % self.pid)
