"""Output that never stops a program: stdout and stderr that drop text which nobody takes.

A reader may be gone (`| head -1`, a closed terminal), at rest (`| less`), a full disk, or absent
(`>&-`). A plain stream then raises an error, or blocks its thread and all that log after it.

1. `guard_streams` opens /dev/null where a standard descriptor is closed: the next file that is
   opened would get its number, and with it the text.
2. It replaces `sys.stdout` and `sys.stderr` by streams that drop text after an error, or when no
   reader has taken any for `TIMING.output_stall_limit` seconds.
3. When output is possible again, one line tells how much was dropped.
"""

from __future__ import annotations

import io
import os
import select
import sys

from tf1ps.compat.timing import TIMING

# The time of day before a line of a task's log, for time.strftime.
LINE_TIME = "%H:%M:%S"
# Set by a launcher whose terminal has a line for each task: then each worker prints its progress.
SCREEN_VARIABLE = "TF1PS_SCREEN"

# Pipes take a piece of this size at once if they take anything (PIPE_BUF of Linux); bytes.
_PIECE = 4096


class DroppingOutput(io.RawIOBase):
  """A descriptor whose writes never fail, and wait for a reader within a limit."""

  def __init__(self, descriptor: int):
    """Creates the output; `descriptor` stays the caller's."""
    super().__init__()
    self._descriptor = descriptor
    self._dropped = 0  # bytes since the last write that succeeded

  def fileno(self) -> int:
    return self._descriptor

  def isatty(self) -> bool:
    return os.isatty(self._descriptor)

  def writable(self) -> bool:
    return True

  def write(self, data) -> int:
    """Writes what can be written, drops the remainder; returns the length of all."""
    data = bytes(data)
    if self._dropped:
      note = b"\n[tf1ps: %d bytes of output were dropped]\n" % self._dropped
      if self._write(note, 0.0) < len(note):
        self._dropped += len(data)
        return len(data)
      self._dropped = 0
    self._dropped = len(data) - self._write(data, TIMING.output_stall_limit)
    return len(data)

  def _write(self, data, limit):
    """Returns how many bytes were written; waits for a reader at most `limit` seconds a piece."""
    done = 0
    try:
      while done < len(data):
        if not select.select([], [self._descriptor], [], limit)[1]:
          break
        done += os.write(self._descriptor, data[done:done + _PIECE])
    except OSError:  # the reader is gone, the disk is full, the descriptor is closed
      pass
    return done


def guard_streams() -> None:
  """Makes this process's stdout and stderr streams that never fail and never block for long.

  A stream that the program has replaced, such as a notebook's, stays as it is.
  """
  for descriptor in range(3):
    _open_if_closed(descriptor)
  sys.stdout = _guarded(sys.stdout, 1)
  sys.stderr = _guarded(sys.stderr, 2)


def _open_if_closed(descriptor):
  try:
    os.fstat(descriptor)
  except OSError:
    null = os.open(os.devnull, os.O_RDWR)
    if null != descriptor:
      os.dup2(null, descriptor)
      os.close(null)
    os.set_inheritable(descriptor, True)


def _guarded(stream, descriptor):
  if stream is not None:
    try:
      if stream.fileno() != descriptor:
        return stream
    except (AttributeError, OSError, ValueError):  # no file, or closed
      return stream
    if isinstance(getattr(stream, "buffer", None), DroppingOutput):
      return stream
    try:
      stream.flush()
    except OSError:
      pass
  # No letter may fail, and lines of both streams keep their order. A BufferedWriter would write
  # text again when the exception of a signal handler comes just after it was written.
  return io.TextIOWrapper(
    DroppingOutput(descriptor), errors="backslashreplace", line_buffering=True,
    encoding="utf-8" if stream is None else stream.encoding)
