"""The output of the tasks: into one log file each, and line by line onto the launcher's screen.

One thread reads the pipes of all tasks to their ends. Each piece goes unchanged into the task's log
file at once; each complete line goes to the screen, as "[worker 0] text". The log file of an
earlier start of the task, in this job or before, is continued below a separator.

Of a line that was overwritten by carriage returns, the screen shows the last text. A last line
without a line end is shown when the task's output ends.

A pipe ends when the task and every process that inherited it have ended. A process that left its
task's process group could hold it open without a limit: so every wait for an end has one.
"""

from __future__ import annotations

import collections
import os
import re
import selectors
import sys
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence

from tf1ps.compat import JsonStream, guard_streams, read_json_line, severity_of
from tf1ps.launch.fork_server import TaskProcess
from tf1ps.launch.stalls import Stalls

# A longer line is shown in pieces; bytes.
_LINE_LIMIT = 64 * 1024
# Read from a pipe at once: everything that a pipe holds; bytes.
_PIECE = 64 * 1024
# Lines kept per task for the final report.
_KEPT_LINES = 20
# The size of a terminal that does not report its size.
_COLUMNS, _ROWS = 80, 24

_PROGRESS = re.compile(r"(\d\d:\d\d:\d\d )?progress: ")  # the begin of such a line


class Screen:
  """Shows the lines of all tasks; on a terminal, one line per task below them.

  Lines come from the thread that reads the tasks' output and from the main thread; a lock keeps
  them whole. A line that cannot be shown never stops a job (see `guard_streams`): when the output
  has no reader any more, or one at rest, the log files go on alone.
  """

  def __init__(self, log: Callable[[str], None] = print):
    """Creates a screen.

    Args:
      log: shows one line, without line end. `print` stands for stdout, flushed after each line; if
        that is a terminal, the lines of the tasks are drawn again below each other line.
    """
    self._log = log
    self._lock = threading.Lock()
    if log is print:
      guard_streams()
    self.is_terminal = log is print and is_terminal()
    self._is_json = log is print and isinstance(sys.stdout, JsonStream)
    self._tasks: Dict[str, str] = {}  # the texts below the other lines
    self._drawn = 0  # how many of them are on the terminal

  def line(self, text: str, severity: str = "INFO") -> None:
    """Shows a line, above those of the tasks; `severity` is for JSON."""
    with self._lock:
      if self._is_json:
        sys.stdout.log(text, severity=severity)
        return
      self._erase()
      self._log(text)
      self._draw()
      if self._log is print:
        sys.stdout.flush()

  def task_line(self, name: str, line: str, record: Optional[dict] = None) -> None:
    """Shows a line of a task; `record` is its object if it is JSON."""
    if not self._is_json:
      self.line("[%s] %s" % (name, line))
      return
    fields = record or {"message": line, "severity": severity_of(line)}
    with self._lock:
      sys.stdout.log(**dict(fields, task=name))

  def task(self, name: str, text: str) -> None:
    """Shows the state of a task on its line of a terminal, or forgets it if `text` is ""."""
    if not self.is_terminal:
      return
    with self._lock:
      if text:
        self._tasks[name] = text
      else:
        self._tasks.pop(name, None)
      self._erase()
      self._draw()
      sys.stdout.flush()

  def progress(self, name: str, line: str, record: Optional[dict] = None) -> None:
    """Shows a task's progress on its line of a terminal; elsewhere as `task_line`."""
    if self.is_terminal:
      self.task(name, _PROGRESS.sub("", line, 1))
    else:
      self.task_line(name, line, record)

  def close(self) -> None:
    """Removes the tasks' lines: their last lines say more."""
    with self._lock:
      self._tasks = {}
      self._erase()

  def _erase(self):
    if self._drawn:
      sys.stdout.write("\r\x1b[%dA\x1b[J" % self._drawn)
      self._drawn = 0

  def _draw(self):
    if not self._tasks:
      return
    try:
      columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:  # the terminal has closed
      columns, rows = 0, 0
    columns, rows = columns or _COLUMNS, rows or _ROWS
    # Lines that wrap, or leave the terminal, could not be erased.
    width = max(map(len, self._tasks))
    lines = ["%s  %s" % (name.ljust(width), text) for name, text in self._tasks.items()]
    if len(lines) > rows - 2:
      more = len(lines) - max(1, rows - 3)
      lines[-more:] = ["and %d more tasks" % more]
    for line in lines:
      encoding = sys.stdout.encoding or "ascii"
      sys.stdout.write(line[:columns - 1].encode(encoding, "replace").decode(encoding) + "\n")
    self._drawn = len(lines)


def is_terminal() -> bool:
  """Whether stdout is a terminal that can erase lines."""
  return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in (
    None, "", "dumb")


def log_path(log_dir: str, name: str) -> str:
  """Returns the log file of a task: "worker-1.log" in `log_dir` for "worker 1"."""
  return os.path.join(log_dir, name.replace(" ", "-") + ".log")


class Output:
  """Reads the output of tasks to its end, in a thread of its own."""

  def __init__(self, processes: Sequence[TaskProcess], screen: Screen, log_dir: Optional[str],
               prefix: str = "tf1ps-local: "):
    """Starts reading the tasks' `output`, which this class closes; `log_dir` exists or is None.

    `prefix` begins the launcher's own lines.
    """
    self._screen, self._log_dir = screen, log_dir
    self._shown = 0
    self._stalls = Stalls(prefix)
    self._streams: Dict[TaskProcess, _Stream] = {}
    self._new = collections.deque()  # streams that the thread does not read yet
    self._wake_read, self._wake_write = os.pipe()
    for process in processes:
      self._add(process)
    self._thread = threading.Thread(target=self._read, name="output", daemon=True)
    self._thread.start()

  def add(self, process: TaskProcess) -> None:
    """Reads the output of one more process, which may be a later start of a task."""
    self._add(process)
    os.write(self._wake_write, b"+")

  def wait_end(self, process: TaskProcess, limit: float) -> bool:
    """Returns whether a process's output ended within `limit` seconds."""
    return self._streams[process].ended.wait(limit)

  def last_lines(self, process: TaskProcess, n: int) -> List[str]:
    """Returns the last `n` lines of a process, or fewer, without progress lines."""
    return list(self._streams[process].kept)[-n:]

  def close(self, limit: float) -> None:
    """Waits for the ends, then reads the remainder, and stops.

    The wait ends after `limit` seconds without another line, or ten times that while lines come.
    """
    if self._wake_write is None:
      return
    self._wait_while_lines_come(self._have_ended, limit)
    os.close(self._wake_write)
    self._wake_write = None
    # It hangs only in a screen that takes no line; then it stays behind, as a daemon.
    self._wait_while_lines_come(self._thread_ends, limit)

  def _wait_while_lines_come(self, ends_within, limit):
    for _ in range(10):
      before = self._shown
      if ends_within(limit) or self._shown == before:
        break

  def _have_ended(self, limit):
    end = time.monotonic() + limit
    return all(stream.ended.wait(max(0.0, end - time.monotonic()))
               for stream in self._streams.values())

  def _thread_ends(self, limit):
    self._thread.join(limit)
    return not self._thread.is_alive()

  def _add(self, process):
    self._screen.task(process.name, "running")
    stream = _Stream(process, self._show, self._screen.line, self._log_dir)
    self._streams[process] = stream
    self._new.append(stream)

  def _read(self):
    with selectors.DefaultSelector() as selector:
      selector.register(self._wake_read, selectors.EVENT_READ, None)
      stopped = False
      while not stopped:
        while self._new:
          stream = self._new.popleft()
          selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        for line in self._stalls.take(list(self._streams)):
          self._screen.line(line)
        for key, _ in selector.select(self._stalls.left):
          if key.data is None:
            stopped = not os.read(self._wake_read, _PIECE)
          elif not key.data.read():
            selector.unregister(key.fd)
            key.data.close()
            self._screen.task(key.data.name, "ended")
    for stream in list(self._streams.values()):
      stream.close()
    os.close(self._wake_read)

  def _show(self, name, line, record):
    self._shown += 1
    self._stalls.note(name, line)
    show = self._screen.progress if _PROGRESS.match(line) else self._screen.task_line
    show(name, line, record)


class _Stream:
  """One task's pipe, log file, and incomplete last line."""

  def __init__(self, process, show, complain, log_dir):
    self.descriptor = process.output
    self.ended = threading.Event()
    self.kept = collections.deque(maxlen=_KEPT_LINES)
    self.name = process.name
    self._show, self._complain = show, complain
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
    record = read_json_line(text)
    text = text if record is None else record["message"]
    if not _PROGRESS.match(text):
      self.kept.extend(text.split("\n"))
    self._show(self.name, text, record)

  def _write_log(self, piece):
    if self._log is None:
      return
    try:
      view = memoryview(piece)
      while view:
        view = view[self._log.write(view):]
    except OSError as error:  # a full disk ends the log, not the job
      self._complain("cannot write %s any more: %s" % (self._log.name, error))
      self._log.close()
      self._log = None
