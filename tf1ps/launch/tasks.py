"""What is started, and what became of it: a task before and after it is a process."""

from __future__ import annotations

import pickle
from typing import Callable, Dict, NamedTuple, Optional, Tuple


class LocalTask(NamedTuple):
  """A task of a job, to be run as a process of this machine."""
  # Job and index: "ps 0", "worker 1", "evaluator 0".
  name: str
  # What the process calls: a function of a module that can be imported, as `pickle` needs it.
  # It returns the exit code, or None for 0. Its process then leaves by `os._exit`: what is
  # registered with `atexit` does not run, and no other thread can hold it up.
  function: Callable[..., Optional[int]]
  # The function's arguments; they are pickled.
  args: Tuple = ()
  # Environment variables to set before the function is loaded; None removes one. TensorFlow is
  # imported already: what it reads at import belongs into the launcher's environment.
  env: Dict[str, Optional[str]] = {}


class TaskProcess(object):
  """A task that was started.

  Attributes:
    name: the task's.
    pid: process id, and the id of its process group.
    output: file descriptor from which its stdout and stderr are read. Whoever takes it closes it.
    exit_code: None while it runs, then its exit code; -n if signal n ended it.
  """

  def __init__(self, name: str, pid: int, output: int):
    self.name = name
    self.pid = pid
    self.output = output
    self.exit_code: Optional[int] = None

  def __repr__(self):
    return "TaskProcess(%r, pid=%d, exit_code=%r)" % (self.name, self.pid, self.exit_code)


def pickle_task(task):
  """Returns what the task's process unpickles, or says why it could not."""
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
