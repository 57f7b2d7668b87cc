"""What ended the queue runners of a session, and how its consumer hears of it.

Each session has one `Failures`. In the order of what happens when a runner fails:

1. The runner's thread records the error. The first one counts: what follows is its consequence.
2. It closes its queue and cancels nothing, so that all that is in the queue reaches the consumer.
3. The consumer's next run, also behind further queues, finds the queue closed and empty. In place
   of that OutOfRangeError it gets the recorded one, and the coordinators are told.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import error_line

_log = logging.getLogger("tf1ps")
_CONSEQUENCES = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
_of_session = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Failures:
  """What ended the queue runners of one session; for any thread.

  Attributes:
    error: the first error, or None.
  """

  def __init__(self):
    self.error: Optional[BaseException] = None
    self._coordinators = weakref.WeakSet()
    self._lock = threading.Lock()

  def tell(self, coord: tf.train.Coordinator) -> None:
    """Has a coordinator stopped with the error when the consumer gets it."""
    with self._lock:
      self._coordinators.add(coord)

  def record(self, error: BaseException, queue: str) -> None:
    """Records what ended a runner.

    Args:
      error: the error.
      queue: the name of the runner's queue.
    """
    with self._lock:
      if self.error is not None:
        return
      self.error = error
    _log.warning("the queue runner of %s has failed; what it had enqueued before is still there: "
                 "%s", queue, error_line(error))

  def explain(self, error: BaseException) -> BaseException:
    """Returns the error that a run's error is the consequence of, or itself."""
    if self.error is None or not isinstance(error, _CONSEQUENCES):
      return error
    with self._lock:
      coordinators = list(self._coordinators)
    for coord in coordinators:
      if not coord.joined:
        coord.request_stop((type(self.error), self.error, self.error.__traceback__))
    return self.error


def of(session) -> Failures:
  """The failures of a session."""
  with _lock:
    if session not in _of_session:
      _of_session[session] = Failures()
    return _of_session[session]


def connect(session, coord: Optional[tf.train.Coordinator]) -> Failures:
  """Has the consumer of a session, and a coordinator, hear of what ends its runners.

  Args:
    session: a session.
    coord: a coordinator, or None.

  Returns:
    The failures of the session, in which its runners record.
  """
  failures = of(session)
  explain_runs(session)
  if coord is not None:
    failures.tell(coord)
    if hasattr(coord, "add_failures"):
      coord.add_failures(failures)
  return failures


def explain_runs(session) -> None:
  """Has a session's `run`, and what its `make_callable` makes from now on, raise true causes.

  Both are replaced on this one object.

  Args:
    session: a session.
  """
  if "run" in vars(session):
    return
  failures = of(session)
  reference = weakref.ref(session)  # else the session would keep itself alive

  def run(*args, **kwargs):
    own = reference()
    return _explained(failures, type(own).run, own, *args, **kwargs)

  def make_callable(*args, **kwargs):
    own = reference()
    function = type(own).make_callable(own, *args, **kwargs)
    return lambda *values, **options: _explained(failures, function, *values, **options)

  session.run, session.make_callable = run, make_callable


def _explained(failures, function, *args, **kwargs):
  try:
    return function(*args, **kwargs)
  except _CONSEQUENCES as error:
    cause = failures.explain(error)
    if cause is error:
      raise
    raise cause from error
