"""Reports the error that ends a program.

An error that tf1ps raises names the wrong value, so one line is enough. An error from the user's
code, or one that nobody expected, needs its traceback as well.
"""

from __future__ import annotations

import logging
import os
import signal
import sysconfig
import traceback
from typing import Optional

from tf1ps.compat import Error, error_line

# The types that tf1ps and its libraries raise for wrong values; their text names the value.
_EXPECTED = (ValueError, RuntimeError, OSError)
_TF1PS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple(
  sysconfig.get_paths()[each] + os.sep for each in ("stdlib", "purelib", "platlib"))


class UsageError(Error):
  """A command line that cannot be right."""


def show_traceback(error: BaseException, program, always: bool = False) -> bool:
  """Prints the traceback of an error, unless one line is enough.

  Args:
    error: the caught error.
    program: the user's `Program`, or None if none was imported.
    always: whether every error but a `UsageError` gets its traceback.

  Returns:
    Whether it was printed.
  """
  if isinstance(error, UsageError):
    return False
  if isinstance(error, _EXPECTED) and not always and not came_through(error, program):
    return False
  text = traceback.format_exception(type(error), error, error.__traceback__)
  logging.getLogger("tf1ps").error("%s", "".join(text).rstrip())
  return True


def came_through(error: BaseException, program) -> bool:
  """Whether an error came from the user's code: the program, or other code that it called.

  Args:
    error: the caught error.
    program: the user's `Program`, or None if none was imported.
  """
  if program is None:
    return False
  folder = os.path.dirname(os.path.abspath(program.module.__file__)) + os.sep
  for frame in traceback.extract_tb(error.__traceback__):
    path = frame.filename
    if os.path.isabs(path) and not path.startswith(_TF1PS) and (
        path.startswith(folder) or not path.startswith(_INSTALLED)):
      return True
  return False


def line(error: BaseException) -> str:
  """An error as one line: its type and its text."""
  if isinstance(error, SystemExit):
    return "the program called sys.exit(%r)" % (error.code,)
  return "%s: %s" % (type(error).__name__, error_line(error))


def signal_of(error: BaseException) -> Optional[int]:
  """The signal n of a SystemExit(128 + n) or of Ctrl-C; None for other errors."""
  if isinstance(error, KeyboardInterrupt):
    return int(signal.SIGINT)
  code = error.code if isinstance(error, SystemExit) else None
  return code - 128 if isinstance(code, int) and 128 < code <= 192 else None
