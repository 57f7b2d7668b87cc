"""The exit codes of tasks and launchers.

0: the task has done everything. `EXIT_FAILED`: it has not; the last line has the reason. 128 + n:
signal n ended the process before it was done, as in shells. Three codes pass only between a task
and its launcher: `EXIT_PORT_TAKEN`, after which a launcher that chose the ports tries new ports,
`EXIT_RELEASED`, which is never the cause of a failure, and `EXIT_REFUSED`, after which a launcher
makes no other start.
"""

from __future__ import annotations

import signal

# Failed; the last line says why.
EXIT_FAILED = 1

# The server could not bind its port, because another process has it (Linux's EADDRINUSE is 98).
EXIT_PORT_TAKEN = 98

# Failed because the chief reported that the job failed: the cause is elsewhere. The task's last
# line names EXIT_FAILED.
EXIT_RELEASED = 97

# Failed before the first step by an error that another start would meet again, such as a wrong flag
# or an error in the program. The task's last line names EXIT_FAILED.
EXIT_REFUSED = 96

# The reason of a task that a signal ends begins with it, and the run in its checkpoint directory.
ENDED_BY_SIGNAL = "ended by signal "


def signal_exit_code(number):
  """Returns 128 + number, the exit code of a process that signal `number` ended.

  Raises ValueError for a number other than 1 to 64.
  """
  number = int(number)
  if not 1 <= number <= 64:
    raise ValueError("a signal's number must be 1 to 64, got %d" % number)
  return 128 + number


def signal_name(number: int) -> str:
  """Returns the name of a signal, "SIGTERM"; "signal 63" where it has none."""
  try:
    return signal.Signals(number).name
  except ValueError:
    return "signal %d" % number
