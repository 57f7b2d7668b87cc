"""A thread for each replica of one client, and one end for all.

What happens, in order:

1. Entering the context starts a thread for each replica, which calls `step()` again and again.
2. A replica ends when it has made its steps, when its data ends (`tf.errors.OutOfRangeError`), or
   when another one failed: the first error stops all, and `on_error` may free those that are
   blocked (a `BoundedSession`'s `abort`).
3. `wait` returns when all have ended. Leaving the context stops and joins the threads, within a
   limit, and raises the first error, with the replica's name.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Mapping, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, Error


class ReplicaError(Error, RuntimeError):
  """A replica's step failed; the error of the step is the cause.

  Attributes:
    replica: the name of the replica.
  """

  def __init__(self, replica: str, error: BaseException):
    super().__init__(f"{replica} failed: {type(error).__name__}: {error}")
    self.replica = replica


class ReplicasLeft(Error, RuntimeError):
  """Replicas whose step did not return within the limit; their threads stay behind.

  Attributes:
    replicas: the names of the replicas.
  """

  def __init__(self, replicas: List[str], limit: float):
    super().__init__("%s did not end a step within %g s" % (", ".join(replicas), limit))
    self.replicas = replicas


class ReplicaThreads(object):
  """Runs the steps of several replicas, each in a thread of its own.

  Attributes:
    steps: how many steps each replica has made so far, by name.
  """

  def __init__(self, step_fns: Mapping[str, Callable[[], object]], num_steps: Optional[int] = None,
               on_error: Optional[Callable[[BaseException], None]] = None,
               limit: float = TIMING.replica_end_limit):
    """Prepares the threads; entering the context starts them.

    Args:
      step_fns: by the name of the replica, such as "/job:worker/task:1": makes one step.
      num_steps: how many steps each replica makes; None: until it is stopped or its data ends.
      on_error: called once, with the first error, in the thread that had it.
      limit: seconds that a step may still take once all are told to stop.

    Raises:
      ValueError: there is no replica, or a number is out of its range.
    """
    if not step_fns:
      raise ValueError("there must be at least one replica, got none")
    if num_steps is not None and num_steps < 0:
      raise ValueError(f"num_steps must be 0 or more, got {num_steps}")
    if not limit > 0:
      raise ValueError(f"limit must be above 0 seconds, got {limit}")
    self.steps: Dict[str, int] = {name: 0 for name in step_fns}
    self._num_steps = num_steps
    self._on_error = on_error
    self._limit = limit
    self._lock = threading.Lock()
    self._stopped = threading.Event()
    self._error: Optional[ReplicaError] = None
    self._threads = {
      name: threading.Thread(target=self._run, args=(name, step_fn), daemon=True,
                             name="tf1ps: replica " + name)
      for name, step_fn in step_fns.items()}

  def __enter__(self) -> "ReplicaThreads":
    for thread in self._threads.values():
      thread.start()
    return self

  def __exit__(self, kind, value, traceback) -> None:
    self.stop()
    until = time.monotonic() + self._limit
    for thread in self._threads.values():
      thread.join(max(0.0, until - time.monotonic()))
    if kind is not None:
      return  # the caller's own error is the one to see
    if self._error is not None:
      raise self._error
    left = [name for name, thread in self._threads.items() if thread.is_alive()]
    if left:
      raise ReplicasLeft(left, self._limit)

  def wait(self, timeout: float) -> bool:
    """Waits until all replicas have ended, or one has failed.

    Args:
      timeout: seconds.

    Returns:
      Whether they have; False after the timeout.
    """
    until = time.monotonic() + timeout
    for thread in self._threads.values():
      while thread.is_alive() and not self._stopped.is_set():
        left = until - time.monotonic()
        if left <= 0:
          return False
        thread.join(min(left, 0.1))  # short: a failure of another ends the wait too
    return True

  def stop(self) -> None:
    """Tells all replicas to end after the step that they are in."""
    self._stopped.set()

  def _run(self, name, step_fn):
    try:
      while not self._stopped.is_set() and self.steps[name] != self._num_steps:
        step_fn()
        self.steps[name] += 1
    except tf.errors.OutOfRangeError:
      pass  # the end of this replica's data
    except BaseException as error:
      self._fail(name, error)

  def _fail(self, name, error):
    with self._lock:
      is_first = self._error is None
      if is_first:
        self._error = ReplicaError(name, error)
        self._error.__cause__ = error
    self.stop()
    if is_first and self._on_error is not None:
      self._on_error(error)
