"""Signals for a task whose main thread may be blocked in TensorFlow.

A Python signal handler runs in the main thread, between two bytecodes: never, while that thread
sits in C++. The signal's number is also written to a file descriptor, though, in C, at once. So:

1. `SignalWatch` installs handlers that do nothing, and a thread that reads the descriptor.
2. At the first SIGINT or SIGTERM the thread calls back; the callback frees the main thread.
3. If the process is still there `limit` seconds later, or at a second signal, the stacks of all
   threads are printed and the process leaves by `os._exit` with 128 + the signal's number.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Callable

from tf1ps.compat import TIMING

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def leave_now(code: int, line: str, stacks: bool = False) -> None:
  """Says a line and ends the process at once, whatever its threads are doing."""
  try:
    sys.stdout.flush()
    print(line, file=sys.stderr, flush=True)
    if stacks:
      faulthandler.dump_traceback(all_threads=True)
  finally:
    os._exit(code)


class SignalWatch:
  """Watches SIGINT and SIGTERM from a thread; a context manager.

  It takes over only signals that nobody handles: where the program has a handler of its own, that
  one stays. Outside of the main thread it does nothing, since Python allows no handlers there.

  Attributes:
    signum: the first signal seen, or None.
  """

  def __init__(self, on_signal: Callable[[int], None], limit: float):
    """Creates the watch, not yet active.

    Args:
      on_signal: called from the watching thread with the signal's number, once.
      limit: seconds after the signal until the process is ended by force.
    """
    if limit <= 0:
      raise ValueError("limit must be a positive number of seconds, got %r" % (limit,))
    self._on_signal = on_signal
    self._limit = limit
    self._replaced = {}
    self._thread = None
    self._extension = 0.0
    self.signum = None

  def __enter__(self):
    if threading.current_thread() is not threading.main_thread():
      return self
    free = [s for s in _SIGNALS
            if signal.getsignal(s) in (signal.SIG_DFL, signal.default_int_handler)]
    if not free:
      return self
    self._reader, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
    self._replaced = {signum: signal.signal(signum, lambda *unused: None) for signum in free}
    self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: signals")
    self._thread.start()
    return self

  def __exit__(self, *unused):
    self.stop()

  def extend(self, seconds: float) -> None:
    """Puts the end by force off, for work that must not be cut (a save that is under way)."""
    self._extension = max(self._extension, seconds)

  def stop(self) -> None:
    """Gives the signals back. After a signal the end by force stays due."""
    if self._thread is None:
      return
    for signum, handler in self._replaced.items():
      signal.signal(signum, handler)
    signal.set_wakeup_fd(self._old_fd)
    self._writer.close()
    if self.signum is None:
      self._thread.join(TIMING.thread_end_limit)
    self._thread = None

  def _watch(self):
    with self._reader:
      signum = self._next(None)
      if signum is None:
        return
      self.signum = signum
      ended = time.monotonic() + self._limit
      threading.Thread(
        target=self._on_signal, args=(signum,), daemon=True, name="tf1ps: on signal").start()
      while True:
        left = ended + self._extension - time.monotonic()
        if left <= 0:
          leave_now(128 + signum, "still here %.0f s after signal %d: leaving by force" % (
            self._limit + self._extension, signum), stacks=True)
        if self._next(min(left, TIMING.fast_poll_interval)) is not None:
          leave_now(128 + signum, "a second signal: leaving at once")

  def _next(self, timeout):
    """The next signal of ours, or None at the end of the watch or of the timeout."""
    while True:
      try:
        ready, _, _ = select.select([self._reader], [], [], timeout)
      except (OSError, ValueError):
        return None
      if not ready:
        return None
      data = self._reader.recv(1)
      if not data:
        # The watch was stopped. Without a signal that is its end; with one, only the clock counts.
        if self.signum is not None:
          time.sleep(min(timeout or TIMING.fast_poll_interval, TIMING.fast_poll_interval))
        return None
      if data[0] in self._replaced:
        return data[0]
