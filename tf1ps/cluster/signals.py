"""Signals: how each process of tf1ps receives them. Nothing here imports TensorFlow.

A Python signal handler runs in the main thread, between two bytecodes: never while TensorFlow's C++
blocks that thread. But Python's C code also writes the signal's number to a file descriptor
immediately. So the handlers here do nothing, and the numbers arrive at that descriptor:

1. `SignalQueue` is the descriptor. A main thread that waits for files anyway, such as the
   launcher's, also waits for this descriptor, and takes signals when it is ready for them.
2. `SignalWatch` adds a thread that reads the descriptor. At the first signal it calls a callback,
   which frees the main thread. With a limit, the process ends by force when the limit is over, or
   at a second signal: the thread prints the stacks of all threads and leaves by `os._exit`.

The signals are SIGINT, SIGTERM and SIGHUP. SIGHUP (the terminal has closed) counts as SIGTERM. A
process that ignores SIGHUP, as under `nohup`, continues to ignore it.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Callable, List, Optional

from tf1ps.compat import ENDING_SIGNALS, TIMING, EarlyEnd, signal_exit_code

_handlers: List[Callable] = []  # the active queues' handlers; an inner queue replaces outer queues


def leave_now(code: int, line: str, stacks: bool = False) -> None:
  """Prints a line and ends the process immediately, in any state of its threads."""
  try:
    # A blocked thread may hold the lock of a stream whose reader does not read.
    last_words = threading.Thread(target=_print_last, args=(line, stacks), daemon=True)
    last_words.start()
    last_words.join(TIMING.last_words_limit)
  finally:
    os._exit(code)


def _print_last(line, stacks):
  text = line + "\n"
  if stacks:
    with tempfile.TemporaryFile() as file:  # faulthandler keeps Python's lock while it writes
      faulthandler.dump_traceback(file, all_threads=True)
      file.seek(0)
      text += file.read().decode("utf-8", "replace")
  try:
    sys.stdout.flush()
  finally:
    print(text, end="", file=sys.stderr, flush=True)


def raise_exit(number: int, unused_frame) -> None:
  """A handler that ends the main thread with exit code 128 + the signal's number."""
  raise SystemExit(signal_exit_code(number))


class SignalQueue:
  """The signals that arrive within a `with` block, as a file to wait for.

  Attributes:
    received: the numbers of the signals taken so far, in order.
  """

  def __init__(self, handler: Optional[Callable] = None, replaces_handlers: bool = True):
    """Creates the queue, not yet active.

    Args:
      handler: a Python signal handler that also runs in the main thread; None: nothing runs there.
      replaces_handlers: whether handlers of the program are also replaced within the block. False:
        the program's handler keeps each signal that the program handles.
    """
    self.received: List[int] = []
    self._handler = handler or (lambda *unused: None)
    self._replaces = replaces_handlers
    self._replaced = {}

  def __enter__(self) -> "SignalQueue":
    if threading.current_thread() is not threading.main_thread():
      raise ValueError("signals reach the main thread only: call this from the main thread")
    self._open()
    return self

  def __exit__(self, *unused):
    self._restore()
    self._reader.close()

  def fileno(self) -> int:
    """The file descriptor to wait for; then call `take`."""
    return self._reader.fileno()

  def take(self) -> None:
    """Appends to `received` the signals since the last call; does not wait."""
    try:
      self.received += [number for number in self._reader.recv(4096) if number in self._replaced]
    except BlockingIOError:
      pass

  def _open(self):
    """Replaces the handlers; returns whether it replaced any."""
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    free = (signal.SIG_DFL, signal.default_int_handler, *_handlers)
    mine = [number for number, present in handlers.items()
            if (present in free or isinstance(present, EarlyEnd) or self._replaces)
            and not (number == signal.SIGHUP and present == signal.SIG_IGN)]
    if not mine:
      return False
    self._reader, self._writer = socket.socketpair()
    self._reader.setblocking(False)
    self._writer.setblocking(False)
    self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
    self._replaced = {number: handlers[number] for number in mine}
    _handlers.append(self._handler)
    for number in mine:
      signal.signal(number, self._handler)
    return True

  def _restore(self):
    _handlers.remove(self._handler)
    if threading.current_thread() is not threading.main_thread():
      # The main thread has ended, and the process ends. Only the main thread may change handlers.
      self._writer.close()
      return
    for number, handler in self._replaced.items():
      # None: a handler that was not installed from Python and cannot be installed from here.
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    signal.set_wakeup_fd(self._old_fd)
    self._writer.close()


class SignalWatch(SignalQueue):
  """Watches the signals from a thread; a context manager.

  Outside the main thread it does nothing, because Python allows no handlers there.

  Attributes:
    signum: the first signal, or None.
  """

  def __init__(self, on_signal: Callable[[int], None], limit: Optional[float] = None,
               replaces_handlers: bool = False, handler: Optional[Callable] = None):
    """Creates the watch, not yet active.

    Args:
      on_signal: called from a thread with the first signal's number.
      limit: seconds after the first signal until the process ends by force. With a limit, a second
        signal ends the process immediately. None: the process never ends by force.
      replaces_handlers: as for `SignalQueue`.
      handler: as for `SignalQueue`.

    Raises:
      ValueError: the limit is not positive.
    """
    if limit is not None and limit <= 0:
      raise ValueError("limit must be a positive number of seconds, got %r" % (limit,))
    super().__init__(handler, replaces_handlers)
    self._on_signal, self._limit = on_signal, limit
    self._thread = None
    self._extension = 0.0
    self.signum: Optional[int] = None

  def __enter__(self) -> "SignalWatch":
    if threading.current_thread() is threading.main_thread() and self._open():
      self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: signals")
      self._thread.start()
    return self

  def __exit__(self, *unused):
    self.stop()

  def extend(self, seconds: float) -> None:
    """Delays the end by force, for work that must not be cut off, such as a save in progress."""
    self._extension = max(self._extension, seconds)

  def stop(self) -> None:
    """Restores the handlers. After a signal, the end by force is still due."""
    if self._thread is None:
      return
    self._restore()
    if self.signum is None or self._limit is None:
      self._thread.join(TIMING.thread_end_limit)
    self._thread = None

  def _watch(self):
    with self._reader:
      signum = self._next(None)
      if signum is None:
        return
      self.signum = signum
      began = time.monotonic()
      threading.Thread(
        target=self._on_signal, args=(signum,), daemon=True, name="tf1ps: on signal").start()
      while True:
        if self._limit is None:
          if self._next(None) is None:
            return
          continue
        left = began + self._limit + self._extension - time.monotonic()
        if left <= 0:
          leave_now(
            signal_exit_code(signum), "still here %.0f s after signal %d: leaving by force" % (
              self._limit + self._extension, signum), stacks=True)
        if self._next(min(left, TIMING.fast_poll_interval)) is not None:
          leave_now(signal_exit_code(signum), "a second signal: leaving at once")

  def _next(self, timeout):
    """Returns the next signal, or None at the end of the watch or of the timeout."""
    poll = select.poll()  # select takes no descriptor above 1023
    while True:
      try:
        poll.register(self._reader, select.POLLIN)
        ready = poll.poll(None if timeout is None else 1000 * timeout)
      except (OSError, ValueError):
        return None
      if not ready or ready[0][1] & select.POLLNVAL:
        return None
      data = self._reader.recv(1)
      if not data:
        # The watch was stopped. Without a signal it ends now; after a signal, its limit still runs.
        if self.signum is not None and self._limit is not None:
          time.sleep(min(timeout or TIMING.fast_poll_interval, TIMING.fast_poll_interval))
        return None
      if data[0] in self._replaced:
        self.received.append(data[0])
        return data[0]


class ExitWatch(SignalWatch):
  """A watch whose signal also ends the main thread, with exit code 128 + the signal's number.

  Attributes:
    number: the first signal that has ended the main thread, or None. C++ or the program may catch
      the SystemExit and turn it into another error.
  """

  def __init__(self, on_signal: Callable[[int], None] = lambda signum: None):
    """Creates the watch, not yet active; see `SignalWatch`."""
    super().__init__(on_signal, TIMING.force_exit_limit, handler=self._exit)
    self.number: Optional[int] = None

  def _exit(self, number, frame):
    self.number = number if self.number is None else self.number
    raise_exit(number, frame)
