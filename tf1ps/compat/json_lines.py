"""Output as JSON, one object per line, for log collectors (`--log_format=json`).

`use_json_lines` replaces `sys.stdout`, `sys.stderr` and the output of the tf1ps log. An object has
"time" (RFC 3339), "severity" (DEBUG to CRITICAL), "task", "message", and the figures of a progress.
A traceback of the log is one object. Text that C++ writes to a descriptor stays as it is; a
launcher makes objects of it.
"""

from __future__ import annotations

import datetime
import io
import json
import logging
import math
import re
import sys
import threading
from typing import Optional

WARNING = "WARNING: "  # begins a line of a task's end that its launcher repeats at its own
_BEGIN = '{"time": "'
# TensorFlow's C++ ("W0000 00:00:17..." or "2026-11-25 03:20:47.187166: W tensorflow/...") and absl.
_LEVEL = re.compile(r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?([IWEF])(?:\d{4} | tensorflow/)"
                    r"|(DEBUG|INFO|WARNING|ERROR|FATAL):")
_SEVERITIES = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "FATAL": "CRITICAL"}


def json_line(message: str, task: str, severity: str = "INFO", **fields) -> str:
  """Returns the object of a message as one line, without line end; `fields` may have its time."""
  now = datetime.datetime.now(datetime.timezone.utc)
  values = {name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()}  # JSON has no NaN
  record = dict(time=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                severity=severity, task=task, message=message)
  record.update(values)
  return json.dumps(record)


def read_json_line(line: str) -> Optional[dict]:
  """Returns the object of a line that `json_line` has made; None for another line."""
  if not line.startswith(_BEGIN):
    return None
  try:
    message = json.loads(line)
  except ValueError:
    return None
  return message if isinstance(message.get("message"), str) else None


def severity_of(line: str, default: str = "INFO") -> str:
  """Returns the severity that a line of TensorFlow's or absl's log names."""
  level = _LEVEL.match(line)
  if level is None:
    return default
  name = level.group(1) or level.group(2)
  return _SEVERITIES.get(name, name)


class JsonStream(io.TextIOBase):
  """A text stream that makes an object of each line, on another stream."""

  def __init__(self, stream, task: str, severity: str = "INFO"):
    """Creates the stream; `severity` is that of lines that name none."""
    super().__init__()
    self._stream, self.task, self._severity = stream, task, severity
    self._line = ""
    self._lock = threading.RLock()  # a signal handler may write while its thread does

  @property
  def encoding(self):
    return self._stream.encoding

  @property
  def buffer(self):
    """The stream below for bytes, which go out as they are."""
    return self._stream.buffer

  def fileno(self) -> int:
    return self._stream.fileno()  # for faulthandler, and for processes that a program starts

  def writable(self) -> bool:
    return True

  def write(self, text: str) -> int:
    with self._lock:
      *lines, self._line = (self._line + text).split("\n")
      for line in lines:
        self._write_line(line)
    return len(text)

  def flush(self) -> None:
    with self._lock:
      line, self._line = self._line, ""
      if line:
        self._write_line(line)
      self._stream.flush()

  def log(self, message: str, task: str = "", severity: str = "INFO", **fields) -> None:
    """Writes one object; `fields` are further values of it."""
    with self._lock:
      self._stream.write(json_line(message, task or self.task, severity, **fields) + "\n")

  def _write_line(self, line):
    line = line.rstrip("\r").rpartition("\r")[2]
    if line:
      self.log(line, severity=severity_of(line, self._severity))


class _Formatter(logging.Formatter):
  """Makes an object of a record of the tf1ps log."""

  def __init__(self, task: str):
    super().__init__()
    self.task = task

  def format(self, record):
    return json_line(super().format(record), self.task, record.levelname)


def use_json_lines(task: str) -> None:
  """Has this process write its output as JSON from here on.

  Args:
    task: the name of the task, "worker 0".
  """
  if isinstance(sys.stdout, JsonStream):
    return
  for handler in logging.getLogger("tf1ps").handlers:
    handler.setFormatter(_Formatter(task))  # its stream is the former stdout
  sys.stdout = JsonStream(sys.stdout, task)
  sys.stderr = JsonStream(sys.stderr, task, "ERROR")


def rename_json_lines(task: str) -> None:
  """Changes the name of the task in the JSON of this process, if it writes JSON."""
  formatters = [handler.formatter for handler in logging.getLogger("tf1ps").handlers]
  for writer in (sys.stdout, sys.stderr, *formatters):
    if isinstance(writer, (JsonStream, _Formatter)):
      writer.task = task
