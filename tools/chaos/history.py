"""The history of a run: one JSON object per line, from all processes, in one file.

Each event has these keys; the others depend on the event.

  t      seconds of the monotonic clock, which all processes of a machine share
  job    the job that the task belongs to
  task   the task, such as "worker 1"; "run" for the program that runs the others
  event  the kind

The events, by the task that writes them:

  run       job       a job begins: its mode, its workers, its examples or steps
            start     a process was started: pid
            exit      a process ended: pid, code, and whether the run has killed it
            inject    a fault begins: number, fault, role, phase, targets, seconds
            heal      it is over
            recovered all workers have acknowledged a step since; `seconds` is null if not
            usage     memory, threads and files of a process
            stop      the clients of the queue are asked to end
            gate      the workers are asked to finish without a pause
            end       the job has ended, or was given up
  watcher   checkpoint  a complete checkpoint: step, counts of each ps
            unreadable  a checkpoint that is listed, and cannot be read
  each task begin     a process begins: pid, version of TensorFlow
  worker    session   a session is ready
            try       a step begins: number
            drawn     the ids of a batch
            ack       the step was acknowledged: number, ids, global step
            at        the global step after an acknowledged synchronous step
            saving, saved, restoring, restored, initialised    of checkpoints: path
            ending    the loop has ended
            leave     the session ends
  client    put_try, put_ack, get_try, get_ack    ids of elements, or the number that is asked for
            queue_error
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Dict, List

Event = Dict[str, object]


class Writer:
  """Appends the events of one task.

  A line is one write to a file that is open for appending. So lines of several processes do not
  mix, and a process that is killed leaves whole lines.
  """

  def __init__(self, path: str, job: str, task: str):
    self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    self._job, self._task = job, task
    self._lock = threading.Lock()

  def write(self, event: str, **fields) -> None:
    """Appends an event."""
    with self._lock:
      fields.update(t=round(time.monotonic(), 4), job=self._job, task=self._task, event=event)
      os.write(self._file, (json.dumps(fields) + "\n").encode())

  def close(self) -> None:
    """Closes the file."""
    os.close(self._file)


class Reader:
  """Reads the events that were appended since the last call."""

  def __init__(self, path: str):
    self._file = open(path, "rb")
    self._rest = b""

  def read(self) -> List[Event]:
    """Returns the new events, in the order of the file."""
    *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
    return [json.loads(line.decode()) for line in lines]

  def close(self) -> None:
    """Closes the file."""
    self._file.close()


def read_history(path: str) -> List[Event]:
  """Returns all events of a history in the order of time.

  Raises:
    ValueError: a line is no event.
  """
  events = []
  with open(path) as file:
    for number, line in enumerate(file, 1):
      try:
        event = json.loads(line)
        events.append((event["t"], number, event))
      except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
          "%s, line %d is no event: %.80s" % (path, number, line)) from error
  return [event for _, _, event in sorted(events, key=lambda each: each[:2])]
