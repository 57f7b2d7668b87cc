"""Starts tasks as forks of a process that has imported TensorFlow: the launcher's side.

1. `ForkServer` starts the process (fork_server_main.py), which is `ready` after its imports.
2. `start_task` makes it fork a process for a `LocalTask`, and returns a `TaskProcess`.
3. `take` notes the tasks that have ended. `wait`, or a wait for `fileno`, returns when a task has
   ended.
4. `signal_task` signals a task and every process that it has started.
5. `close`, or the end of the `with` block, kills the running tasks and ends the fork server.

No task outlives the launcher, however the launcher ends (task_main.py).
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
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tf1ps.compat import TIMING, Error
from tf1ps.launch.job import Backend, TaskProcess

_START = ("import sys; sys.path[:] = %r; from tf1ps.launch import fork_server_main; "
          "fork_server_main.main(%d, %d, %d, %r, %r, %r)")


class LocalTask(NamedTuple):
  """A task of a job, to run as a process of this machine."""

  name: str  # job and index: "ps 0", "worker 1", "evaluator 0"
  # A function of a module that the process can import. It returns the exit code; None is 0. Then
  # the process leaves by `os._exit`: no `atexit` function and no thread can delay the end.
  function: Callable[..., Optional[int]]
  args: Tuple = ()  # the arguments of the function; they are pickled
  # Environment variables to set before the function is loaded; None removes a variable. Set the
  # variables that TensorFlow reads at its import in the launcher's environment.
  env: Dict[str, Optional[str]] = {}


class PreloadError(Error, RuntimeError):
  """The fork server could not import a module; the text has the traceback."""


class ForkServerLost(Error, RuntimeError):
  """The fork server has ended by itself; its tasks end with it."""


class ForkServer(Backend):
  """Starts tasks as forks of a process that has imported `preload`."""

  def __init__(self, preload: Sequence[str] = (), quiet: bool = True):
    """Starts the process, which begins its imports.

    Call it in a thread that does not end, such as the main thread (see `die_with_parent`).

    Args:
      preload: the names of the modules to import.
      quiet: whether to hold back the output of the imports, unless an import fails.
    """
    if isinstance(preload, str):
      raise TypeError("preload must be a list of modules' names, got the string %r" % preload)
    self.ready = False
    self.ended: List[TaskProcess] = []
    self._processes: Dict[int, TaskProcess] = {}  # the last process of each process id
    self._connection, far_end = multiprocessing.Pipe()
    self._launcher_pipe: Optional[int]
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

  def __exit__(self, *unused: object) -> None:
    self.close()

  @property
  def pid(self) -> int:
    """The process id of the fork server."""
    return self._server.pid

  def fileno(self) -> int:
    """The file descriptor to wait on; then call `take`."""
    return self._connection.fileno()

  def wait(self, interrupts: Any, limit: Optional[float]) -> None:
    multiprocessing.connection.wait([self._connection, interrupts], limit)

  def start_task(self, task: LocalTask) -> TaskProcess:
    """Starts a task and returns its process; waits for the server's imports, and for the fork.

    Raises:
      ValueError: another process could not load the function, the arguments or the environment.
      PreloadError, ForkServerLost: see these classes.
      OSError: the machine has no room for another process.
    """
    payload = pickle_task(task)
    while not self.ready:
      self._receive(None)
    read_end, write_end = os.pipe()
    try:
      self._send(("start", dict(task.env), payload), write_end)
      answer = None
      end = time.monotonic() + TIMING.fork_limit
      while answer is None:
        if time.monotonic() > end:
          raise ForkServerLost("the fork server (process %d) did not start %s within %g s" % (
            self.pid, task.name, TIMING.fork_limit))
        answer = self._receive(1.0)
      if answer[0] == "not started":
        raise OSError("%s could not be started: %s" % (task.name, answer[1]))
    except BaseException:
      os.close(read_end)
      raise
    finally:
      os.close(write_end)
    process = self._processes[answer[1]] = TaskProcess(task.name, answer[1], read_end)
    return process

  def take(self) -> None:
    """Takes the server's messages since the last call; raises PreloadError or ForkServerLost."""
    while self._poll(0):
      self._receive(0)

  def signal_task(self, process: TaskProcess, number: int) -> None:
    """Sends a signal to the process group of a running task."""
    if process.exit_code is None:
      self._send(("signal", process.pid, int(number)))

  def close(self) -> None:
    """Kills the running tasks and ends the server; further calls do nothing."""
    if self._launcher_pipe is None:
      return
    os.close(self._launcher_pipe)
    self._launcher_pipe = None
    self._connection.close()
    if not self.ready:
      self._server.kill()  # it would notice the closed connection only after its imports
    self._server.send_signal(signal.SIGCONT)  # a stopped server would not notice it at all
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
    """Waits `limit` seconds for a server message; returns the message if it answers a start."""
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
      ended.note_end(message[2])
      self.ended.append(ended)
    else:
      return message
    return None

  def _lost(self):
    """Kills the tasks, because the server no longer can; raises ForkServerLost."""
    for process in self._processes.values():
      if process.exit_code is None:
        try:
          os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
          pass
    raise ForkServerLost(
      "the fork server (process %d), which starts and holds all tasks, has ended" % self.pid)


def pickle_task(task: LocalTask) -> bytes:
  """Returns the pickle of a task's function and arguments, or raises ValueError."""
  if getattr(task.function, "__module__", None) == "__main__":
    raise ValueError(
      "the function of %s, %s, is defined in the script that Python runs: move it to a module that "
      "the task's process can import" % (task.name, task.function.__qualname__))
  for name, value in task.env.items():
    if not isinstance(name, str) or not (value is None or isinstance(value, str)):
      raise ValueError("the environment of %s has %r for %r: give strings, or None to remove a "
                       "variable" % (task.name, value, name))
  try:
    return pickle.dumps((task.function, tuple(task.args)))
  except (pickle.PicklingError, AttributeError, TypeError) as error:
    raise ValueError(
      "%s cannot be sent to a process of its own: %s" % (task.name, error)) from error
