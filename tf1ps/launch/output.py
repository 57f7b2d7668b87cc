"""Writes each task's output into a log file, and line by line onto the launcher's screen.

The screen shows each fact once. It omits lines that are of no use to the user (`NOISE`), which are
only in the log files. A task's traceback is held back: if the task fails, its traceback is shown
last, and only once.

A thread reads the pipes of all tasks to their ends. Each piece goes unchanged and immediately into
the task's log file; each complete line goes to the screen, as "[worker 0] text". If the task has a
log file of an earlier start, in this job or before, the output is appended below a separator.

If carriage returns overwrote a line, the screen shows the line's last text. A last line without a
line end is shown when the task's output ends.

A pipe ends when the task and every process that inherited the pipe have ended. A process that left
its task's process group could hold the pipe open for ever, so every wait for an end has a limit.
"""

from __future__ import annotations

import collections
import importlib.util
import os
import re
import selectors
import sys
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence

from tf1ps.compat import TIMING, WARNING, JsonStream, guard_streams, read_json_line, severity_of
from tf1ps.launch.job import TaskProcess
from tf1ps.launch.stalls import Stalls

_LINE_LIMIT = 64 * 1024  # bytes; a longer line is shown in pieces
_PIECE = 64 * 1024  # the bytes of one read: all that a pipe holds
_KEPT_LINES = 20  # the last lines of each task that are kept for the final report
_COLUMNS, _ROWS = 80, 24  # the size of a terminal that does not report its size
_SCREENFUL = 20  # the number of last lines that are still on the screen
_BAR = 20  # the width of a progress bar

_TIME = r"(?:\d\d:\d\d:\d\d )?"
_PROGRESS = re.compile(_TIME + "progress: ")  # the beginning of a progress line
_STEP = re.compile(r"step (\d+)(?: of (\d+)| \((\d+)%\))")
_TRACEBACK = "Traceback (most recent call last):"

# The lines that the screen omits: advice for names that tf1ps keeps, the files of a temporary
# model, the checkpoint before the first step, the good end of each ps, and the addresses of the
# metrics, which the launcher has printed.
NOISE = re.compile(
  r".*: UserWarning: `tf\.layers\.\w+` is deprecated|" + _TIME +
  r"saved \S*(?:/tf1ps-model-\S+|\.ckpt-0) \(|"
  r"ps \d+: the chief released this task: .*, exit code 0$|"
  r"(?:(?:ps|worker) \d+|evaluator): metrics at http://")
# The lines of tasks that are ended because another task has failed.
CONSEQUENCES = re.compile(
  r".*: ended by signal 15\b|" + _TIME + r"(?:signal 15: leaving$|the chief \S+ failed: |"
  r"the other tasks could not be notified that this task is failed )")


class Screen:
  """Shows the lines of all tasks; on a terminal in colours, with a line per task below them.

  Lines come from the thread that reads the tasks' output and from the main thread; a lock keeps
  them whole. A line that cannot be shown never stops a job (see `guard_streams`): if the reader of
  the output has gone, or does not read, only the log files are written.

  Attributes:
    count: how many lines were shown.
    is_terminal: whether the screen draws the lines of tasks below the other lines.
    is_json: whether each line becomes an object.
  """

  def __init__(self, log: Callable[[str], None] = print):
    """Creates a screen.

    Args:
      log: shows a line, without line end. `print` means stdout, flushed after each line; if stdout
        is a terminal, the lines of the tasks are drawn again below each other line.
    """
    self.count = 0
    self._log = log
    self._lock = threading.Lock()
    if log is print:
      guard_streams()
    self.is_terminal = log is print and is_terminal()
    self.is_json = log is print and isinstance(sys.stdout, JsonStream)
    self._tasks: Dict[str, str] = {}  # the texts below the other lines
    self._drawn = 0  # how many of these texts are on the terminal
    if self.is_terminal:
      from rich.console import Console

      self._console = Console(file=sys.stdout, highlight=False)

  def line(self, text: str, severity: str = "INFO") -> None:
    """Shows a line above the lines of the tasks; `severity` is for JSON, and selects a colour."""
    if not self.is_json and severity == "ERROR":
      text = self._paint(text, "red")
    self._show(text, severity)

  def task_line(self, name: str, line: str, record: Optional[dict] = None) -> None:
    """Shows a line of a task; `record` is its object if it is JSON."""
    if not self.is_json:
      self._show("%s %s" % (self._paint("[%s]" % name, _color_of(name)), line))
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
    """Shows a task's progress on its line of a terminal; without a terminal, as `task_line`."""
    if self.is_terminal:
      self.task(name, _PROGRESS.sub("", line, 1))
    else:
      self.task_line(name, line, record)

  def close(self) -> None:
    """Removes the tasks' lines, because the tasks' last lines of output say more."""
    with self._lock:
      self._tasks = {}
      self._erase()

  def _show(self, text, severity="INFO"):
    with self._lock:
      self.count += 1
      if self.is_json:
        sys.stdout.log(text, severity=severity)
        return
      self._erase()
      self._log(text)
      self._draw()
      if self._log is print:
        sys.stdout.flush()

  def _paint(self, text, style) -> str:
    if not self.is_terminal:
      return text
    from rich.text import Text

    with self._console.capture() as painted:
      self._console.print(Text(text, style), end="", soft_wrap=True)
    return painted.get()

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
    # Lines that wrap, or scroll out of the terminal, could not be erased.
    width = max(map(len, self._tasks))
    shown = list(self._tasks.items())[:rows - 2 if len(self._tasks) <= rows - 2 else
                                      max(1, rows - 3)]
    encoding = sys.stdout.encoding or "ascii"
    for name, text in shown:
      share = _share_of(text) if columns >= 2 * _COLUMNS // 3 else None
      head, bar = name.ljust(width) + "  ", ""
      if share is not None:
        bar = ("\u2501" if encoding.lower().startswith("utf") else "=") * round(share * _BAR)
      gap = " " * (_BAR - len(bar) + 2) if share is not None else ""
      text = text.encode(encoding, "replace").decode(encoding)
      text = text[:max(0, columns - 1 - len(head) - len(bar) - len(gap))]
      sys.stdout.write("%s%s%s%s\n" % (
        self._paint(head[:columns - 1], _color_of(name)), self._paint(bar, "green"), gap, text))
    if len(shown) < len(self._tasks):
      sys.stdout.write("and %d more tasks\n" % (len(self._tasks) - len(shown)))
    self._drawn = len(shown) + (len(shown) < len(self._tasks))


def _color_of(name: str) -> str:
  return {"ps": "magenta", "evaluator": "yellow"}.get(name.split()[0], "cyan")


def _share_of(text: str) -> Optional[float]:
  """Returns the finished share of the work, 0 to 1, from a task's progress line; or None."""
  match = _STEP.match(text)
  if match is None:
    return None
  step, last, percent = match.groups()
  return min(1.0, int(step) / max(1, int(last)) if last else int(percent) / 100)


def is_terminal() -> bool:
  """Whether stdout is a terminal that can erase lines, and the package rich is installed."""
  return (sys.stdout is not None and sys.stdout.isatty()
          and os.environ.get("TERM") not in (None, "", "dumb")
          and importlib.util.find_spec("rich") is not None)


def log_path(log_dir: str, name: str) -> str:
  """Returns the log file of a task: "worker-1.log" in `log_dir` for "worker 1"."""
  return os.path.join(log_dir, name.replace(" ", "-") + ".log")


class Output:
  """Reads the output of tasks to its end, in a separate thread."""

  def __init__(self, processes: Sequence[TaskProcess], screen: Screen, log_dir: Optional[str],
               prefix: str = "tf1ps-local: ", folds: bool = False):
    """Starts reading the tasks' `output`, which this class closes; `log_dir` exists or is None.

    `prefix` begins the launcher's own lines. With `folds`, the screen omits noise and holds back
    tracebacks.
    """
    self._screen, self._log_dir = screen, log_dir
    self._folds = folds and not screen.is_json
    self._is_ending = False
    self._shown = 0
    self._lock = threading.Lock()  # for the lines that are held back
    self._stalls = Stalls(prefix)
    self._streams: Dict[TaskProcess, _Stream] = {}
    self._new = collections.deque()  # streams that the thread does not read yet
    self._wake_read, self._wake_write = os.pipe()
    for process in processes:
      self.add(process)
    self._thread = threading.Thread(target=self._read, name="output", daemon=True)
    self._thread.start()

  def add(self, process: TaskProcess) -> None:
    """Reads the output of a further process, which may be a later start of a task."""
    self._screen.task(process.name, "running")
    stream = _Stream(process, self._show, self._screen.line, self._log_dir)
    self._streams[process] = stream
    self._new.append(stream)
    os.write(self._wake_write, b"+")

  def wait_end(self, process: TaskProcess, limit: float) -> bool:
    """Returns whether a process's output ended within `limit` seconds."""
    return self._streams[process].ended.wait(limit)

  def last_lines(self, process: TaskProcess, n: int) -> List[str]:
    """Returns the last `n` lines of a process, or fewer, without progress lines."""
    return list(self._streams[process].kept)[-n:]

  def is_on_screen(self, process: TaskProcess) -> bool:
    """Whether the last line of a process was shown so recently that it is still on the screen."""
    return self._screen.count - self._streams[process].shown_at <= _SCREENFUL

  def begin_end(self) -> None:
    """Notes that a task has failed: omits the consequences, and keeps back the held lines."""
    self._is_ending = True

  def take_held(self, process: TaskProcess) -> List[str]:
    """Returns the held-back traceback, with the lines below it, which are then not shown."""
    with self._lock:
      stream = self._streams[process]
      held, stream.held = stream.held, []
    return held

  def show_held(self, process: TaskProcess) -> None:
    """Shows the lines of a process that are held back."""
    for line in self.take_held(process):
      self._show_now(self._streams[process], line, None)

  def warnings(self) -> List[str]:
    """Returns the warnings among the last lines of all processes."""
    return [line for stream in list(self._streams.values()) for line in stream.kept
            if line.startswith(WARNING)]

  def close(self, limit: float) -> None:
    """Waits for the ends of the outputs, then reads the remainder, and stops.

    The wait ends after `limit` seconds without another line, or, while lines come, after ten times
    `limit` seconds.
    """
    if self._wake_write is None:
      return
    self._wait_while_lines_come(self._have_ended, limit)
    os.close(self._wake_write)
    self._wake_write = None
    # The thread hangs only if the screen accepts no line; then it remains, as a daemon.
    self._wait_while_lines_come(self._thread_ends, limit)
    if not self._is_ending and not self._thread.is_alive():
      for process in list(self._streams):
        self.show_held(process)

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
        for key, _ in selector.select(self._show_due()):
          if key.data is None:
            stopped = not os.read(self._wake_read, _PIECE)
          elif not key.data.read():
            selector.unregister(key.fd)
            key.data.close()
            self._screen.task(key.data.name, "ended")
    for stream in list(self._streams.values()):
      stream.close()
    os.close(self._wake_read)

  def _show_due(self):
    """Shows lines that were held back for long; returns the seconds until the next call is due."""
    lefts = [] if self._stalls.left is None else [self._stalls.left]
    for process, stream in list(self._streams.items()):
      if stream.held and not self._is_ending:
        left = stream.held_until - time.monotonic()
        if left <= 0:
          self.show_held(process)
        else:
          lefts.append(left)
    return min(lefts) if lefts else None

  def _show(self, stream, line, record):
    self._shown += 1
    self._stalls.note(stream.name, line)
    if self._folds and (self._is_noise(stream, line) or self._hold(stream, line)):
      return
    self._show_now(stream, line, record)

  def _show_now(self, stream, line, record):
    show = self._screen.progress if _PROGRESS.match(line) else self._screen.task_line
    show(stream.name, line, record)
    stream.shown_at = self._screen.count

  def _is_noise(self, stream, line):
    """Whether a line is noise, or is the line of code below a warning that is noise."""
    below, stream.is_noise = stream.is_noise, bool(NOISE.match(line))
    return stream.is_noise or (below and line.startswith("  ")) or (
      self._is_ending and bool(CONSEQUENCES.match(line)))

  def _hold(self, stream, line):
    """Holds back a traceback and the lines that follow it immediately."""
    with self._lock:
      if not stream.held and line != _TRACEBACK:
        return False
      if not stream.held:
        stream.held_until = time.monotonic() + TIMING.traceback_limit
      stream.held.append(line)
    return True


class _Stream:
  """A task's pipe, log file, and incomplete last line."""

  def __init__(self, process, show, complain, log_dir):
    self.descriptor = process.output
    self.ended = threading.Event()
    self.kept = collections.deque(maxlen=_KEPT_LINES)
    self.held: List[str] = []  # lines that are not shown yet
    self.held_until = 0.0
    self.is_noise = False  # whether the last line was noise
    self.shown_at = 0  # the screen's count at the last line
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
    """Reads a piece; returns its length, 0 at the end."""
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
    self._show(self, text, record)

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
