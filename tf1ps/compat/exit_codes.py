"""What the exit code of a task or of a launcher means.

0 says that everything asked for was done. `EXIT_FAILED` says that it was not; the reason
stands in the last line. 128 + n says that signal n ended the process before it was done,
as shells count. Two pass between a task and its launcher only: `EXIT_PORT_TAKEN`, which a launcher
that chose the ports itself answers with new ones, and `EXIT_RELEASED`, which is never the cause.
"""

from __future__ import annotations

import signal

# Failed; the last line says why.
EXIT_FAILED = 1

# The server could not bind its port, because somebody else has it (Linux's EADDRINUSE is 98).
EXIT_PORT_TAKEN = 98

# Failed as the chief said that the job had: the cause is elsewhere. Its last line says EXIT_FAILED.
EXIT_RELEASED = 97


def signal_exit_code(number):
  """Returns the exit code of a process that signal `number` ended.

  Args:
    number: int or `signal.Signals`, 1 to 64.

  Returns:
    int, 128 + number.

  Raises:
    ValueError: if there is no such signal number.
  """
  number = int(number)
  if not 1 <= number <= 64:
    raise ValueError("A signal's number is 1 to 64, not %d." % number)
  return 128 + number


def signal_name(number: int) -> str:
  """The name of a signal, "SIGTERM"; "signal 63" where it has none."""
  try:
    return signal.Signals(number).name
  except ValueError:
    return "signal %d" % number
