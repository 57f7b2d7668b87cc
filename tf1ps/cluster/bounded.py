"""Sets a limit for a call that has no limit itself.

Some calls of TensorFlow wait without a limit: a server whose ps has no address, the first run of a
session, the close of a session whose ps died. No other thread can end such a call. So the call runs
in a daemon thread, and the caller continues after the limit. A thread whose call has returned waits
for the next call, because starting a thread takes longer than many calls. A thread whose caller has
stopped waiting ends with its call.

On TensorFlow 2, the close of a session that returns while the interpreter exits aborts the process.
So the end of the process waits, within a limit, for calls that are `awaited_at_exit`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from typing import Callable, Iterator, List, Optional

from tf1ps.compat import TIMING, Error


class LimitExceeded(Error, RuntimeError):
  """A call did not return within its limit."""


def call_within(limit: float, what: str, function, *args,
                extend: Optional[Callable[[], bool]] = None, **kwargs):
  """Calls a function in another thread; returns its result within `limit` seconds.

  Args:
    limit: seconds.
    what: the name of the call, for the error: "creating the session on grpc://...".
    function: the function to call.
    args, kwargs: its arguments.
    extend: called when the limit is over; returns whether the call gets the same time again.

  Raises:
    LimitExceeded: the function has not returned. Its thread, a daemon, continues.
    Exception: the function's own error.
  """
  helper = _take_helper()
  helper.calls.put((what, function, args, kwargs))
  try:
    value, error = helper.answer(limit, what, extend)
  except BaseException:  # the limit is over, or a signal's handler has raised
    helper.calls.put(None)  # its thread ends after the call
    raise
  _idle.append(helper)
  if error is not None:
    raise error
  return value


_awaited = 0  # calls under way that the end of the process waits for
_has_ended = threading.Condition()


@contextlib.contextmanager
def awaited_at_exit() -> Iterator[None]:
  """Makes the end of the process wait for this call, which closes a session."""
  global _awaited
  with _has_ended:
    _awaited += 1
  try:
    yield
  finally:
    with _has_ended:
      _awaited -= 1
      _has_ended.notify_all()


def _await_calls() -> None:
  with _has_ended:
    _has_ended.wait_for(lambda: _awaited == 0, TIMING.late_close_limit)


atexit.register(_await_calls)


class _CallThread:
  """A daemon thread that makes calls in the order in which they come."""

  def __init__(self):
    self.calls, self._results = queue.SimpleQueue(), queue.SimpleQueue()
    threading.Thread(target=_make_calls, args=(self.calls, self._results), daemon=True).start()

  def answer(self, limit, what, extend):
    """Waits for the result of the call: (value, error)."""
    try:
      while True:
        try:
          return self._results.get(timeout=max(0.0, limit))
        except queue.Empty:
          if extend is None or not extend():
            return self._results.get_nowait()  # the result may have come meanwhile
    except queue.Empty:
      raise LimitExceeded("%s did not end within %g s" % (what, round(limit, 1))) from None


_idle: List[_CallThread] = []  # helpers that wait for a call


def _forget_threads() -> None:
  """Forgets the threads in a forked process, which lacks them; one may have held the lock."""
  global _awaited, _has_ended
  _idle.clear()
  _awaited, _has_ended = 0, threading.Condition()


if hasattr(os, "register_at_fork"):
  os.register_at_fork(after_in_child=_forget_threads)


def _take_helper():
  try:
    return _idle.pop()
  except IndexError:
    return _CallThread()


def _make_calls(calls, results):
  while True:
    call: Optional[tuple] = calls.get()
    if call is None:
      return
    what, function, args, kwargs = call
    threading.current_thread().name = "tf1ps: " + what
    try:
      result = (function(*args, **kwargs), None)
    except BaseException as error:
      result = (None, error)
    # No reference may outlive the call here: a kept error would keep its whole stack.
    call = function = args = kwargs = None
    threading.current_thread().name = "tf1ps: idle"
    results.put(result)
    result = None
