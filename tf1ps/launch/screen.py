"""What the launcher shows: lines of all tasks, and on a terminal the chief's progress below them.

Lines come from the thread that reads the tasks' output and from the main thread; a lock keeps
them whole. A line that cannot be shown never stops a job: letters that the terminal's encoding
lacks are escaped, and when nobody reads the output any more, the log files go on alone.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Callable, Optional


class Screen(object):
  """Shows lines by `log`; shows progress on one line where stdout is a terminal."""

  def __init__(self, log: Callable[[str], None] = print, terminal: Optional[bool] = None):
    """Creates a screen.

    Args:
      log: shows one line, without line end. `print` stands for stdout, flushed after each line.
      terminal: whether progress is kept on one line, by tqdm; None: if `log` is `print` and
        stdout is a terminal.
    """
    self._log = log
    self._lock = threading.Lock()
    self._gone = False
    self._bar = None
    if terminal is None:
      terminal = log is print and sys.stdout is not None and sys.stdout.isatty()
    self._tqdm = _import_tqdm() if terminal else None

  def line(self, text: str) -> None:
    """Shows a line, above the progress if there is one."""
    with self._lock:
      self._guarded(self._show, text)

  def progress(self, text: str) -> None:
    """Shows a line that replaces the last one of its kind. A plain line if no terminal."""
    with self._lock:
      self._guarded(self._show if self._tqdm is None else self._show_progress, text)

  def close(self) -> None:
    """Leaves the last progress where it is; later lines come below it."""
    with self._lock:
      if self._bar is not None:
        self._guarded(self._bar.close)
        self._bar = None

  def _guarded(self, show, *args):
    if self._gone:
      return
    try:
      show(*args)
    except (OSError, ValueError):  # ValueError: closed. UnicodeError is met in _show.
      self._gone = True
      if self._log is print:
        _discard_stdout()

  def _show(self, text):
    write = self._log if self._bar is None else self._tqdm.write
    try:
      write(text)
    except UnicodeEncodeError:
      write(text.encode("ascii", "backslashreplace").decode("ascii"))
    if self._log is print:
      sys.stdout.flush()

  def _show_progress(self, text):
    columns = os.get_terminal_size(sys.stdout.fileno()).columns
    if self._bar is None:
      # A terminal that does not tell its size would get nothing from tqdm.
      size = {"dynamic_ncols": True} if columns else {"ncols": 79, "nrows": 24}
      self._bar = self._tqdm(bar_format="{desc}", file=sys.stdout, **size)
    # What wraps could not be overwritten; not every tqdm cuts it.
    self._bar.set_description_str(text[:(columns or 80) - 1])


def _import_tqdm():
  """Returns tqdm's class, without its monitor thread; None where tqdm is not installed."""
  try:
    import tqdm
  except ImportError:
    return None
  tqdm.tqdm.monitor_interval = 0
  return tqdm.tqdm


def _discard_stdout():
  """Has the interpreter flush its last lines to nowhere, not to a pipe that nobody reads."""
  try:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
  except (AttributeError, OSError, ValueError):
    pass
