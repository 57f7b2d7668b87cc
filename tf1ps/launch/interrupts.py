"""Signals that ask the launcher to end, as something that it can wait for.

A Python signal handler runs between two instructions of the main thread, wherever that is. Here
it does nothing: the signal's number arrives as a byte in a socket, which the launcher waits for
beside its tasks, and so takes signals only where it is ready to.
"""

from __future__ import annotations

import signal
import socket
import threading
from typing import List

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Interrupts(object):
  """Catches SIGINT, SIGTERM and SIGHUP within a `with` block, and puts the old handlers back.

  SIGHUP (the terminal is gone) stays ignored where it was, as `nohup` wants it.

  Attributes:
    received: list of the signals that came and were taken, the first one first.
  """

  def __init__(self):
    self.received: List[int] = []

  def __enter__(self) -> Interrupts:
    if threading.current_thread() is not threading.main_thread():
      raise ValueError("Signals reach the main thread only: start the launcher there.")
    self._read, self._write = socket.socketpair()
    self._read.setblocking(False)
    self._write.setblocking(False)
    self._old_wakeup = signal.set_wakeup_fd(self._write.fileno())
    self._old_handlers = {}
    for number in _SIGNALS:
      if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
        continue
      self._old_handlers[number] = signal.signal(number, lambda number, frame: None)
    return self

  def __exit__(self, *unused):
    for number, handler in self._old_handlers.items():
      # None: a handler that was not installed from Python, and cannot be from here.
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    signal.set_wakeup_fd(self._old_wakeup)
    self._read.close()
    self._write.close()

  def fileno(self) -> int:
    """The file descriptor to wait on; then call `take`."""
    return self._read.fileno()

  def take(self) -> None:
    """Appends to `received` what came since the last call; does not wait."""
    try:
      self.received += [n for n in self._read.recv(4096) if n in self._old_handlers]
    except BlockingIOError:
      pass
