"""A limit for a call that has none of its own.

TensorFlow has calls that wait for ever: a server whose ps has no address, the first run of a
session, the close of a session whose ps died. Nothing can end such a call from outside, but its
thread can be left behind: the call runs in a daemon thread, and the caller goes on after the limit.
"""

from __future__ import annotations

import threading

from tf1ps.compat import Error


class LimitExceeded(Error, RuntimeError):
  """A call that did not return within its limit."""


def call_within(limit: float, what: str, function, *args, **kwargs):
  """Calls a function in a thread of its own and waits at most `limit` seconds for it.

  Args:
    limit: seconds.
    what: what is being done, for the error: "creating the session on grpc://...".
    function: the callable; args and kwargs: what it is called with.

  Returns:
    What the function returned.

  Raises:
    LimitExceeded: the function had not returned by then. Its thread stays behind, a daemon.
    Whatever the function raised.
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
  if thread.is_alive():
    raise LimitExceeded("%s did not end within %g s" % (what, round(limit, 1)))
  if "error" in box:
    raise box["error"]
  return box["value"]
