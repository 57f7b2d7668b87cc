"""What the tasks write: into one log file each, and line by line onto the launcher's screen.

One thread reads the pipes of all tasks until their ends. Each piece goes as it is into the task's
log file at once; each complete line goes to the screen, as "[worker 0] text". The file of an
earlier start is continued below a separator, so that nothing of it is lost.

Of a line that was overwritten on its way (a progress bar's carriage returns), the screen gets what
was to be seen last. A last line without line end is shown when the task's output ends.

A pipe ends when the task and everything that inherited it have ended. A process that left its
task's process group could hold it open for ever: every wait for an end has a limit.
"""

from __future__ import annotations

import collections
import os
import selectors
import threading
import time
from typing import List, Optional, Sequence

from tf1ps.launch import screen as screen_lib
from tf1ps.launch import tasks

# A line longer than this is shown in pieces; bytes.
_LINE_LIMIT = 64 * 1024
# Read from a pipe at once: all that a pipe holds; bytes.
_PIECE = 64 * 1024
# Kept for the final report.
_KEPT_LINES = 20

PROGRESS = "progress: "


def log_path(log_dir: str, name: str) -> str:
  """Returns the log file of a task: "worker-1.log" in `log_dir` for "worker 1"."""
  return os.path.join(log_dir, name.replace(" ", "-") + ".log")


class Output(object):
  """Reads the output of tasks until all of it has ended, in a thread of its own."""

  def __init__(self, processes: Sequence[tasks.TaskProcess], screen: screen_lib.Screen,
               log_dir: Optional[str]):
    """Starts to read.

    Args:
      processes: the `TaskProcess`es; their `output` is closed here.
      screen: a `Screen`.
      log_dir: directory of the log files, which is there; None for none.
    """
    self._screen = screen
    self._shown = 0
    self._streams = {
        process.name: _Stream(process, self._show, screen.line, log_dir)
        for process in processes}
    self._stop_read, self._stop_write = os.pipe()
    self._thread = threading.Thread(target=self._read, name="output", daemon=True)
    self._thread.start()

  def wait_end(self, name: str, limit: float) -> bool:
    """Waits until a task's output was read to its end; whether it was, within `limit` seconds."""
    return self._streams[name].ended.wait(limit)

  def last_lines(self, name: str, n: int) -> List[str]:
    """Returns at most `n` lines that a task wrote last, without progress lines."""
    return list(self._streams[name].kept)[-n:]

  def close(self, limit: float) -> None:
    """Waits for the ends, then reads what is there, and stops.

    Args:
      limit: seconds without another line after which no end is waited for any more; ten times
        that while lines come.
    """
    if self._stop_write is None:
      return
    self._join_while_lines_come(limit)
    os.close(self._stop_write)
    self._stop_write = None
    # It hangs only in a screen that takes no line; then it is left behind, a daemon.
    self._join_while_lines_come(limit)

  def _join_while_lines_come(self, limit):
    for _ in range(10):
      before = self._shown
      self._thread.join(limit)
      if not self._thread.is_alive() or self._shown == before:
        break

  def _read(self):
    with selectors.DefaultSelector() as selector:
      selector.register(self._stop_read, selectors.EVENT_READ, None)
      for stream in self._streams.values():
        selector.register(stream.descriptor, selectors.EVENT_READ, stream)
      stopped = False
      while len(selector.get_map()) > 1 and not stopped:
        for key, _ in selector.select():
          if key.data is None:
            stopped = True
          elif not key.data.read():
            selector.unregister(key.fd)
            key.data.close()
    for stream in self._streams.values():
      stream.close()
    os.close(self._stop_read)

  def _show(self, name, line):
    self._shown += 1
    if line.startswith(PROGRESS):
      self._screen.progress("[%s] %s" % (name, line))
    else:
      self._screen.line("[%s] %s" % (name, line))


class _Stream(object):
  """One task's pipe, log file, and the line that is not complete yet."""

  def __init__(self, process, show, complain, log_dir):
    self.descriptor = process.output
    self.ended = threading.Event()
    self.kept = collections.deque(maxlen=_KEPT_LINES)
    self._name = process.name
    self._show = show
    self._complain = complain
    self._line = b""
    self._log = None
    if log_dir is not None:
      path = log_path(log_dir, process.name)
      self._log = open(path, "ab", buffering=0)
      self._write_log(("%s---- %s, process %d, started %s ----\n" % (
          "\n" if self._log.tell() else "", process.name, process.pid,
          time.strftime("%Y-%m-%d %H:%M:%S"))).encode("utf-8"))

  def read(self):
    """Reads one piece; returns its length, 0 at the end."""
    piece = os.read(self.descriptor, _PIECE)
    self._write_log(piece)
    *lines, self._line = (self._line + piece).split(b"\n")
    for line in lines:
      self._show_line(line)
    if len(self._line) > _LINE_LIMIT:
      self._flush_line()
    return len(piece)

  def close(self):
    """Shows the last line if it has no end, and closes pipe and file."""
    if self.ended.is_set():
      return
    self._flush_line()
    os.close(self.descriptor)
    if self._log is not None:
      self._log.close()
    self.ended.set()

  def _flush_line(self):
    if self._line:
      self._show_line(self._line)
      self._line = b""

  def _show_line(self, line):
    text = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
    if not text.startswith(PROGRESS):
      self.kept.append(text)
    self._show(self._name, text)

  def _write_log(self, piece):
    if self._log is None:
      return
    try:
      view = memoryview(piece)
      while view:
        view = view[self._log.write(view):]
    except OSError as error:  # A full disk ends the log, not the job.
      self._complain("cannot write %s any more: %s" % (self._log.name, error))
      self._log.close()
      self._log = None
