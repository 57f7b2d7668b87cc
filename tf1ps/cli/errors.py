"""What a program says of the error that ends it.

An error that tf1ps raises itself names the value that was wrong: a line says it all. One that came
out of the user's code, or that nobody expected, needs its place as well: the traceback is shown.
"""

from __future__ import annotations

import logging
import os
import signal
import sysconfig
import traceback
from typing import Optional

from tf1ps.compat import Error, error_line

# Raised by tf1ps, or by what it calls with the user's values: their text says what was wrong.
_EXPECTED = (ValueError, RuntimeError, OSError)
_TF1PS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = tuple(
  sysconfig.get_paths()[each] + os.sep for each in ("stdlib", "purelib", "platlib"))


class UsageError(Error):
  """A command line that cannot be right."""


def show_traceback(error: BaseException, program, always: bool = False) -> bool:
  """Prints the traceback of an error where a line is not enough.

  Args:
    error: what was caught.
    program: the user's `Program`, or None where none was imported.
    always: print it whatever it is, but for a `UsageError`.

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
  """Whether an error came out of the user's code: of the program, or of what that called.

  Args:
    error: what was caught.
    program: the user's `Program`, or None where none was imported.
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
  """An error as a line: its type, and what it says."""
  if isinstance(error, SystemExit):
    return "the program ended Python with %r" % (error.code,)
  return "%s: %s" % (type(error).__name__, error_line(error))


def signal_of(error: BaseException) -> Optional[int]:
  """The signal that a SystemExit with 128 + n, or Ctrl-C, stands for; None for other errors."""
  if isinstance(error, KeyboardInterrupt):
    return int(signal.SIGINT)
  code = error.code if isinstance(error, SystemExit) else None
  return code - 128 if isinstance(code, int) and 128 < code <= 192 else None
