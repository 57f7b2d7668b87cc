"""A thread for each replica of a client, and a common end of all threads.

The calls come in this order:

1. `start` starts a thread for each replica; the thread repeats the replica's step. A context starts
   the threads once. A training loop starts them again with each new session.
2. A replica ends when it has made its steps, when its data end (`tf.errors.OutOfRangeError`), or
   when another replica failed. The first error stops all replicas, and `on_error` may free those
   that are blocked (`BoundedSession.abort`).
3. `wait` returns when all replicas have ended.
4. `end` stops the threads and waits for them, within a limit. Leaving the context does the same,
   and raises the first error, with the replica's name.
"""

from __future__ import annotations

import threading
import time
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Type

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


class ReplicaThreads:
  """Runs the steps of several replicas, each in its own thread.

  Attributes:
    steps: the number of steps that each replica has made so far, by name.
    ended: the names of the replicas whose data have ended; `start` starts no thread for them.
    error: the `ReplicaError` of the first failure since the last `start`, or None.
  """

  def __init__(self, step_fns: Mapping[str, Callable[..., object]], num_steps: Optional[int] = None,
               on_error: Optional[Callable[..., Optional[bool]]] = None,
               limit: float = TIMING.replica_end_limit, *,
               is_last: Callable[[object], bool] = lambda result: False):
    """Prepares the threads; `start`, or entering the context, starts them.

    Args:
      step_fns: {the name of a replica, such as "/job:worker/task:1": a function that makes one
        step}. Each function is called with the arguments of `start`.
      num_steps: the number of steps of each replica; None: until it is stopped or its data end.
      on_error: called with the error and the arguments of `start`, in the thread of the error.
        If it returns True, the error is handled and ends only its thread, and the next error counts
        as the first. Otherwise `on_error` is not called again.
      limit: seconds that a step may still take after `end`.
      is_last: called with the result of each step. If it returns True, the replica's thread ends.

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
    self.ended: Set[str] = set()
    self.error: Optional[ReplicaError] = None
    self._step_fns = dict(step_fns)
    self._num_steps, self._on_error, self._limit = num_steps, on_error, limit
    self._is_last = is_last
    self._lock = threading.Lock()
    self._stopped = threading.Event()  # of the threads that were started last
    self._threads: Dict[str, threading.Thread] = {}

  def start(self, *args: Any) -> None:
    """Starts a thread for each replica whose data have not ended; ends earlier threads first.

    `args` are the arguments of each step, such as the session.
    """
    self.end()
    stopped = threading.Event()
    with self._lock:  # an earlier thread that is still in its step reports no error any more
      self._stopped, self.error = stopped, None
    self._threads = {
      name: threading.Thread(target=self._run, args=(name, args, stopped), daemon=True,
                             name="tf1ps: replica " + name)
      for name in self._step_fns if name not in self.ended}
    for thread in self._threads.values():
      thread.start()

  def __enter__(self) -> "ReplicaThreads":
    self.start()
    return self

  def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
               traceback: Optional[types.TracebackType]) -> None:
    left = self.end()
    if kind is not None:
      return  # the error of the caller's block comes first
    if self.error is not None:
      raise self.error
    if left:
      raise ReplicasLeft(left, self._limit)

  @property
  def have_ended(self) -> bool:
    """Whether the data of all replicas have ended."""
    return len(self.ended) == len(self._step_fns)

  @property
  def is_stopped(self) -> bool:
    """Whether the replicas were stopped, or a replica has failed."""
    return self._stopped.is_set()

  def wait(self, timeout: float) -> bool:
    """Waits until all threads have ended, or a thread has failed; False after `timeout` seconds."""
    until = time.monotonic() + timeout
    for thread in self._threads.values():
      while thread.is_alive() and not self._stopped.is_set():
        left = until - time.monotonic()
        if left <= 0:
          return False
        thread.join(min(left, TIMING.fast_poll_interval))  # another thread's failure ends the wait
    return True

  def stop(self) -> None:
    """Tells all replicas to end after their present step."""
    self._stopped.set()

  def end(self) -> List[str]:
    """Stops all replicas, and waits for their threads within the limit.

    Returns the names of the replicas whose threads are still in a step, and stay behind.
    """
    self.stop()
    until = time.monotonic() + self._limit
    for thread in self._threads.values():
      thread.join(max(0.0, until - time.monotonic()))
    return [name for name, thread in self._threads.items() if thread.is_alive()]

  def _run(self, name, args, stopped):
    try:
      while not stopped.is_set() and self.steps[name] != self._num_steps:
        result = self._step_fns[name](*args)
        self.steps[name] += 1
        if self._is_last(result):
          return
    except tf.errors.OutOfRangeError:
      self.ended.add(name)
    except BaseException as error:
      self._fail(name, error, args, stopped)

  def _fail(self, name, error, args, stopped):
    with self._lock:
      if self.error is not None or stopped is not self._stopped:
        return  # only the first error of the present threads counts
      if self._on_error is not None and self._on_error(error, *args):
        return
      self.error = ReplicaError(name, error)
      self.error.__cause__ = error
    stopped.set()
