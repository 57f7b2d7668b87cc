"""What the exit code of a task or of a launcher means.

0 says that everything asked for was done. `EXIT_FAILED` says that it was not; the reason
stands in the last line. 128 + n says that signal n ended the process before it was done,
as shells count. `EXIT_PORT_TAKEN` passes between a task and its launcher only: a launcher
that chose the ports itself answers it with new ones.
"""

from __future__ import annotations

# Failed; the last line says why.
EXIT_FAILED = 1

# The server could not bind its port, because somebody else has it (Linux's EADDRINUSE is 98).
EXIT_PORT_TAKEN = 98


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
