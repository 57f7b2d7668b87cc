"""Starts tasks as forks of one process; this is the launcher's side of it.

Order of use:

1. `ForkServer(preload)` starts one process that imports TensorFlow (see fork_server_main.py);
   call `take()` until it is `ready`.
2. `start_task(task)` makes it fork a process for a `LocalTask`, and returns a `TaskProcess`.
3. `take()` records the tasks that have ended. The server has a `fileno()`, so that
   `multiprocessing.connection.wait([server, ...], limit)` waits for its messages beside others.
4. `signal_task` signals a task and every process that it has started.
5. `close()`, or the end of the `with` block, kills all running tasks and ends the fork server.

No task outlives the launcher, however the launcher ends: see task_main.py.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tf1ps.compat import TIMING, Error

_START = ("import sys; sys.path[:] = %r; from tf1ps.launch import fork_server_main; "
          "fork_server_main.main(%d, %d, %d, %r, %r, %r)")


class LocalTask(NamedTuple):
  """A task of a job, to run as a process of this machine."""
  # Job and index: "ps 0", "worker 1", "evaluator 0".
  name: str
  # The function that the process calls; `pickle` needs a function of a module that can be imported.
  # It returns the exit code, or None for 0. Its process then leaves by `os._exit`: functions of
  # `atexit` do not run, and no other thread can delay the end.
  function: Callable[..., Optional[int]]
  # The function's arguments; they are pickled.
  args: Tuple = ()
  # Environment variables to set before the function is loaded; None removes one. TensorFlow is
  # imported already: variables that it reads at import belong into the launcher's environment.
  env: Dict[str, Optional[str]] = {}


class TaskProcess(object):
  """A task that was started.

  Attributes:
    name: the task's.
    pid: process id, and the id of its process group.
    output: file descriptor of a pipe with its stdout and stderr; the reader closes it.
    exit_code: None while it runs, then its exit code; -n if signal n ended it.
    ended_at: None while it runs, then the time of its end, as of `time.time`.
  """

  def __init__(self, name: str, pid: int, output: int):
    self.name, self.pid, self.output = name, pid, output
    self.exit_code: Optional[int] = None
    self.ended_at: Optional[float] = None

  def __repr__(self):
    return "TaskProcess(%r, pid=%d, exit_code=%r)" % (self.name, self.pid, self.exit_code)


class PreloadError(Error, RuntimeError):
  """A module could not be imported by the fork server; the text has the traceback."""


class ForkServerLost(Error, RuntimeError):
  """The fork server has ended by itself; its tasks end with it."""


class ForkServer(object):
  """Starts tasks as forks of one process that has imported `preload`."""

  def __init__(self, preload: Sequence[str] = (), quiet: bool = True):
    """Starts the server process, which begins to import the modules named in `preload`.

    Call it in a thread that lives on, such as the main thread (see `die_with_parent`). `quiet`
    holds back the output of these imports, unless one of them fails.
    """
    if isinstance(preload, str):
      raise TypeError("preload is a list of modules' names, not the string %r." % preload)
    self.ready = False
    # The tasks that have ended, the first one first.
    self.ended: List[TaskProcess] = []
    self._processes = {}  # Number, in order of their start, to TaskProcess.
    self._connection, far_end = multiprocessing.Pipe()
    pipe_read, self._launcher_pipe = os.pipe()
    path = [entry for entry in sys.path if isinstance(entry, str)]
    code = _START % (path, far_end.fileno(), pipe_read, os.getpid(), list(preload),
                     bool(quiet), list(sys.argv))
    try:
      self._server = subprocess.Popen(
          [sys.executable, "-c", code], stdin=subprocess.DEVNULL, start_new_session=True,
          pass_fds=(far_end.fileno(), pipe_read))
    except BaseException:
      self._connection.close()
      os.close(self._launcher_pipe)
      raise
    finally:
      far_end.close()
      os.close(pipe_read)

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

  def start_task(self, task: LocalTask) -> TaskProcess:
    """Starts a task and returns its process; waits until the server is ready, and for the fork.

    Raises:
      ValueError: another process could not find the function or load the arguments.
      PreloadError, ForkServerLost: see these classes.
      OSError: the machine has no room for another process.
    """
    payload = pickle_task(task)
    while not self.ready:
      self._receive(None)
    number = len(self._processes)
    read_end, write_end = os.pipe()
    try:
      self._send(("start", number, dict(task.env), payload), write_end)
      answer = None
      end = time.monotonic() + TIMING.fork_limit
      while answer is None:
        if time.monotonic() > end:
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
    self._processes[number] = TaskProcess(task.name, answer[2], read_end)
    return self._processes[number]

  def take(self) -> None:
    """Takes the server's messages since the last call: `ready`, and exit codes of ended tasks.

    Raises PreloadError or ForkServerLost.
    """
    while self._poll(0):
      self._receive(0)

  def signal_task(self, process: TaskProcess, number: int) -> None:
    """Sends a signal to a running task and all of its process group."""
    if process.exit_code is None:
      for key, known in self._processes.items():
        if known is process:
          self._send(("signal", key, int(number)))

  def close(self) -> None:
    """Kills every running task and ends the server; further calls do nothing."""
    if self._launcher_pipe is None:
      return
    os.close(self._launcher_pipe)
    self._launcher_pipe = None
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
    """Takes one message of the server, if one arrives within `limit` seconds.

    Returns a ("started", ...) or ("not started", ...) message, else None.
    """
    if not self._poll(limit):
      return None
    try:
      message = self._connection.recv()
    except (EOFError, OSError):
      self._lost()
    if message[0] == "ready":
      self.ready = True
    elif message[0] == "refused":
      raise PreloadError(message[1])
    elif message[0] == "ended":
      ended = self._processes[message[1]]
      ended.exit_code, ended.ended_at = message[2], time.time()
      self.ended.append(ended)
    else:
      return message
    return None

  def _lost(self):
    """Kills the process groups of the server's tasks, which the server cannot kill any more."""
    for process in self._processes.values():
      if process.exit_code is None:
        try:
          os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
          pass
    raise ForkServerLost(
        "The fork server (process %d), which starts and holds all tasks, has ended." % self.pid)


def pickle_task(task):
  """Returns the pickle of the task's function and arguments; ValueError if none could load it."""
  if getattr(task.function, "__module__", None) == "__main__":
    raise ValueError(
        "The function of %s, %s, is defined in the script that is run itself. It must be in a "
        "module that the task's process can import." % (task.name, task.function.__qualname__))
  for name, value in task.env.items():
    if not isinstance(name, str) or not (value is None or isinstance(value, str)):
      raise ValueError("The environment of %s has %r: %r; it takes strings, and None to remove a "
                       "variable." % (task.name, name, value))
  try:
    return pickle.dumps((task.function, tuple(task.args)))
  except (pickle.PicklingError, AttributeError, TypeError) as error:
    raise ValueError(
        "%s cannot be sent to a process of its own: %s" % (task.name, error)) from error
