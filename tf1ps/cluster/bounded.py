"""A limit for a call that has none of its own.

Some calls of TensorFlow wait without a limit: a server whose ps has no address, the first run of a
session, the close of a session whose ps died. No other thread can end such a call. So the call runs
in a daemon thread of its own, and the caller continues after the limit.
"""

from __future__ import annotations

import threading
from typing import Callable, Optional

from tf1ps.compat import Error


class LimitExceeded(Error, RuntimeError):
  """A call did not return within its limit."""


def call_within(limit: float, what: str, function, *args,
                extend: Optional[Callable[[], bool]] = None, **kwargs):
  """Calls a function in a thread of its own; returns its result within `limit` seconds.

  Args:
    limit: seconds.
    what: the name of the call, for the error: "creating the session on grpc://...".
    function: the function to call.
    args, kwargs: its arguments.
    extend: called when the limit is over; returns whether the call gets the limit again.

  Raises:
    LimitExceeded: the function has not returned. Its thread, a daemon, stays behind.
    Exception: the function's own.
  """
  box = {}

  def work():
    try:
      box["value"] = function(*args, **kwargs)
    except BaseException as error:
      box["error"] = error

  thread = threading.Thread(target=work, daemon=True, name="tf1ps: " + what)
  thread.start()
  thread.join(limit)
  while extend is not None and thread.is_alive() and extend():
    thread.join(limit)
  if thread.is_alive():
    raise LimitExceeded("%s did not end within %g s" % (what, round(limit, 1)))
  if "error" in box:
    raise box["error"]
  return box["value"]
