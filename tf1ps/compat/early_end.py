"""The end of a process by a signal that comes before its program handles signals.

The imports of a program take seconds on a busy machine. Python's own answers to a signal in that
time are a traceback and an end that a shell shows as another code. This module imports nothing
heavy.
"""

from __future__ import annotations

import os
import signal

from tf1ps.compat.exit_codes import ENDED_BY_SIGNAL, signal_exit_code

ENDING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_DEFAULTS = {number: signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
             for number in ENDING_SIGNALS}


class EarlyEnd:
  """A signal handler: the process ends at once, with one line, and exit code 128 + n.

  `cluster.SignalQueue` replaces it as it replaces Python's own handlers.
  """

  def __init__(self, name: str):
    """`name` is that of the program, for the line."""
    self._name = name

  def __call__(self, number, unused_frame):
    try:
      os.write(2, ("%s: %s%d\n" % (self._name, ENDED_BY_SIGNAL, number)).encode())
    finally:
      os._exit(signal_exit_code(number))

  def install(self) -> None:
    """Takes the place of Python's own handlers; a signal that is ignored stays so."""
    for number, default in _DEFAULTS.items():
      if signal.getsignal(number) == default:
        signal.signal(number, self)


def remove_early_end() -> None:
  """Brings Python's own handlers back, for a program that expects them."""
  for number, default in _DEFAULTS.items():
    if isinstance(signal.getsignal(number), EarlyEnd):
      signal.signal(number, default)
