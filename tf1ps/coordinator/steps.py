"""Scheduled steps: a bounded queue between the program and the workers, and the steps' results.

A step is in one of four places: in the queue, on a worker, done, or cancelled. A step whose worker
was lost goes back to the head of the queue, so it runs at least once. After the first error of a
step, the queue is emptied: the steps in it are cancelled, and the program's next `schedule` or
`join` raises the error.
"""

from __future__ import annotations

import collections
import itertools
import threading
import time
from typing import Any, Callable, Deque, List, Optional

from tf1ps.compat import TIMING, Error, error_line


class StepError(Error, RuntimeError):
  """A scheduled step failed. Its cause (`__cause__`) is the error of TensorFlow or of the program.

  Attributes:
    number: the number of the step, counted from 1 in the order of `schedule`.
  """

  def __init__(self, number: int, text: str):
    super().__init__(text)
    self.number = number


class StepCancelledError(Error, RuntimeError):
  """A scheduled step did not run, because another step failed first or the coordinator ended."""


class RemoteValue:
  """The result of a scheduled step.

  Attributes:
    number: the number of the step, counted from 1 in the order of `schedule`.
  """

  def __init__(self, number: int, function, arguments, stays: bool = False):
    self.number = number
    # These attributes are for the worker that runs the step.
    self.function, self.arguments, self.stays, self.losses = function, arguments, stays, 0
    self._take: Optional[Callable[[], Any]] = None
    self._lock = threading.Lock()
    self._done = threading.Event()
    self._value: Any = None
    self._error: Optional[BaseException] = None

  def fetch(self, timeout: Optional[float] = None) -> Any:
    """Waits for the step, and returns its result as NumPy values in the structure of the function.

    Args:
      timeout: seconds; None waits as long as the coordinator has a worker.

    Raises:
      StepError: the step failed, or its result stayed on a worker that was lost.
      StepCancelledError: the step did not run.
      TimeoutError: the step is not done within the timeout.
    """
    if not self._done.wait(timeout):
      raise TimeoutError("step %d is not done within %g s" % (self.number, timeout))
    with self._lock:
      if self._take is not None:
        take, self._take = self._take, None
        try:
          self._value = take()
        except StepError as error:
          self._error = error
    if self._error is not None:
      raise self._error
    return self._value

  def done(self) -> bool:
    """Returns whether the step has ended: with a result, with an error, or cancelled."""
    return self._done.is_set()

  def finish(self, value: Any = None, error: Optional[BaseException] = None,
             take: Optional[Callable[[], Any]] = None) -> None:
    """Sets the result, the error, or the function that takes the result from a worker.

    Only the room itself calls it.
    """
    self._value, self._error, self._take = value, error, take
    self.arguments = None
    self._done.set()


class StepQueue:
  """The steps that wait for a worker or are running on a worker.

  Attributes:
    scheduled: the number of steps scheduled so far.
    completed: the number of steps that ended with a result.
    retries: how often a step went back to the queue because its worker or a ps was lost.
  """

  def __init__(self, capacity: int):
    self._capacity = capacity
    self._changed = threading.Condition()
    self._waiting: Deque[RemoteValue] = collections.deque()
    self._running = 0
    self._error: Optional[BaseException] = None
    self._is_fatal = False
    self._is_closed = False
    self.scheduled = self.completed = self.retries = 0

  def put(self, function, arguments, stays: bool, timeout: Optional[float],
          each_round: Callable[[], None]) -> RemoteValue:
    """Appends a step; waits while the queue is full. Raises the error of an earlier step."""
    with self._changed:
      self._wait(lambda: len(self._waiting) < self._capacity, timeout, each_round,
                 "the queue of %d steps is full" % self._capacity)
      self.scheduled += 1
      step = RemoteValue(self.scheduled, function, arguments, stays)
      self._waiting.append(step)
      self._changed.notify_all()
      return step

  def take(self, limit: float,
           find_most: Callable[[RemoteValue], int] = lambda step: 1) -> List[RemoteValue]:
    """Returns the next step for a worker, or all steps of a run if so many steps wait.

    Args:
      limit: seconds to wait for a step; if no step comes, the list is empty.
      find_most: returns the number of steps in a run that begins with the next step. All steps of a
        run have the same function, and none of their results stays on the worker.
    """
    with self._changed:
      if not self._waiting and not self._is_closed:
        self._changed.wait(limit)
      count = min(1, len(self._waiting))
      most = find_most(self._waiting[0]) if count else 0
      if 1 < most <= len(self._waiting):
        first = self._waiting[0].function.key
        if all(not step.stays and step.function.key == first
               for step in itertools.islice(self._waiting, most)):
          count = most
      self._running += count
      taken = [self._waiting.popleft() for _ in range(count)]
      self._changed.notify_all()
      return taken

  def give_back(self, step: RemoteValue) -> None:
    """Puts a step whose worker was lost back into the queue."""
    with self._changed:
      self._running -= 1
      if self._error is not None or self._is_closed:
        step.finish(error=cancelled(step, self._error))
      else:
        self.retries += 1
        self._waiting.appendleft(step)
      self._changed.notify_all()

  def finish(self, step: RemoteValue, value: Any, take: Optional[Callable[[], Any]]) -> None:
    """Notes the result of a step, or the function that takes the result from the worker."""
    step.finish(value, take=take)
    with self._changed:
      self._running -= 1
      self.completed += 1
      self._changed.notify_all()

  def fail(self, error: BaseException, step: Optional[RemoteValue] = None) -> None:
    """Notes the error of a step, or, without a step, an error after which no step can run."""
    with self._changed:
      if step is not None:
        self._running -= 1
        step.finish(error=error)
      else:
        self._is_fatal = True
      if self._error is None:
        self._error = error
      self._cancel()

  def is_empty(self) -> bool:
    """Returns whether no step waits or is under way."""
    with self._changed:
      return not self._waiting and not self._running

  def join(self, timeout: Optional[float], each_round: Callable[[], None]) -> None:
    """Waits until every step has ended; raises the first error of a step."""
    with self._changed:
      self._wait(lambda: not self._waiting and not self._running, timeout, each_round,
                 "%d steps are not done" % (len(self._waiting) + self._running))

  def close(self) -> None:
    """Cancels the steps that wait. Steps under way end by themselves."""
    with self._changed:
      self._is_closed = True
      self._cancel()

  def _cancel(self):
    while self._waiting:
      step = self._waiting.popleft()
      step.finish(error=cancelled(step, self._error))
    self._changed.notify_all()

  def _wait(self, is_over, timeout, each_round, problem):
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
      if self._error is not None and (self._is_fatal or not self._running):
        error = self._error
        if not self._is_fatal:
          self._error = None  # the error is raised once; then the program may schedule again
        raise error
      if self._error is None and is_over():
        return
      if deadline is not None and time.monotonic() > deadline:
        raise TimeoutError("%s after %g s" % (problem, timeout))
      self._changed.wait(TIMING.poll_interval)
      each_round()


def cancelled(step: RemoteValue, cause: Optional[BaseException] = None) -> StepCancelledError:
  """Returns the error of a step that another error, or the coordinator's end, has cancelled."""
  error = StepCancelledError("step %d did not run: %s" % (
    step.number, "the coordinator has ended" if cause is None else error_line(cause)))
  error.__cause__ = cause
  return error
