"""Ends the sessions that a program leaves open when its code has ended.

Many programs end with `print("done")`, and never close their session or stop their Supervisor. With
TensorFlow alone, the ps then run on. Here each open session is registered, and ends when the code
of the program ends: the chief waits for the other workers, saves, and releases the ps; another
worker reports its end.

`end_open_sessions` ends the sessions. A caller that runs a program's code calls it after that code.
Otherwise a thread calls it after the end of the main thread. (An `atexit` function would run too
late: by then Python 3.12 starts no thread.) The thread cannot see the exit code of a
`sys.exit(code)`, and treats that exit as success.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import List, Optional

from tf1ps.cluster import leave_now
from tf1ps.compat import error_line

_log = logging.getLogger("tf1ps")
_open: List["Endable"] = []  # a process global
_lock = threading.Lock()
_watch: Optional[threading.Thread] = None


class Endable:
  """A session or presence that ends with the process at the latest."""

  def end_with_process(self, error: Optional[BaseException]) -> None:
    """Ends this session or presence; `error` ended the program's code, or is None. May raise."""
    raise NotImplementedError


def register(session: Endable) -> None:
  """Ends a session when the code of the program ends. A later session ends first."""
  global _watch
  with _lock:
    _open.append(session)
    if _watch is None or not _watch.is_alive():  # a forked process lacks its parent's threads
      _watch = threading.Thread(target=_end_after_main, name="tf1ps: end of the process")
      _watch.start()


def forget(session: Endable) -> None:
  """Takes back `register`."""
  with _lock:
    _open[:] = [other for other in _open if other is not session]


def end_open_sessions(error: Optional[BaseException] = None) -> None:
  """Ends every session that is still open.

  Args:
    error: the exception or SystemExit that ended the code of the program, or None.

  Raises:
    JobFailedError: this task did its part, but another task of the job failed or is lost.
    SystemExit: a signal ended this task.
  """
  if isinstance(error, SystemExit) and error.code in (None, 0):
    error = None
  raised = None
  while True:
    with _lock:
      if not _open:
        break
      session = _open.pop()
    try:
      session.end_with_process(error)
    except BaseException as problem:
      if raised is None and problem is not error:
        raised = problem
      error = error or problem
  if raised is not None:
    raise raised


def _end_after_main():
  threading.main_thread().join()
  # An uncaught error, which Python has printed. In an interactive session it may be an old error.
  error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
  try:
    end_open_sessions(error)
  except SystemExit as problem:
    code = problem.code if isinstance(problem.code, int) else 1
    leave_now(code, "leaving with exit code %d" % code)
  except BaseException as problem:
    if error is None:
      _log.debug("%s", "".join(traceback.format_exception(
        type(problem), problem, problem.__traceback__)))
      leave_now(1, "%s: %s" % (type(problem).__name__, error_line(problem)))
