"""The checkpoint directory of a run: announces the run there, and refuses a second living one.

1. `open` reads the status file that an earlier run may have left. If that run has ended, or its
   process is dead, the chief announces its own run at once, before it builds its graph: an
   evaluator sees that the run lives.
2. Otherwise the earlier run may be alive. The chief watches for longer than a living chief leaves
   the file unchanged, beside its other work, and announces its run after that.
3. `await_free` waits for the end of that watch. If the file has changed, another job uses the
   directory.

The watch compares contents; it never compares clocks of two machines.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import Callable

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointError, remove_leftovers
from tf1ps.compat import TIMING, Error, error_line, has_ended
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile, StopFile, new_run_id

_log = logging.getLogger("tf1ps")
# A living chief leaves its file unchanged for less than this many of its intervals.
_INTERVALS = 1.6


class DirectoryInUseError(Error, RuntimeError):
  """Another living job saves into the checkpoint directory of this one."""


class RunDirectory:
  """The chief's access to the run's status file."""

  def __init__(self, checkpoint_dir: str, heartbeat_timeout: float):
    """Prepares the access; `open` reads the file.

    Args:
      checkpoint_dir: the directory; it need not exist.
      heartbeat_timeout: the seconds after which an evaluator takes the run for lost.
    """
    self._name = checkpoint_dir
    self._file = RunFile(checkpoint_dir)
    self._every = min(TIMING.status_interval, heartbeat_timeout / 6)
    self._stop = StopFile(checkpoint_dir)
    self._looked_at = 0.0
    self._began = None
    self._left = None  # the status that was there
    self._is_free = False
    self._lock = threading.RLock()
    self.run_id = ""  # of the run that may go on, else a new one

  def open(self) -> None:
    """Reads the file, and announces the run if nobody else can be using the directory.

    Raises CheckpointError if the file cannot be written.
    """
    with self._lock:
      if self._began is not None:
        return
      self._began, self._left = time.monotonic(), self._file.read()
      was_running = self._left is not None and self._left.state == RUN_RUNNING
      goes_on = was_running or self._left is not None and self._left.may_resume
      self.run_id = self._left.run if goes_on else new_run_id()
      self._is_free = not was_running or _is_dead(self._left)
      if self._is_free:
        self._announce(self._left.global_step if goes_on else -1)

  def beat(self, run_id: str, global_step: int) -> None:
    """Writes, from time to time, that the run is alive; `run_id` is "" before it is known."""
    with self._lock:
      if self._looks_free():
        self._file.touch(run_id or self.run_id, global_step, self._every)

  def stop_request(self, run_id: str) -> str:
    """Returns why the evaluator asks for the end of a run, or ""; looks from time to time."""
    now = time.monotonic()
    if now - self._looked_at < self._every:
      return ""
    self._looked_at = now
    return self._stop.read(run_id)

  def await_free(self, is_ours: Callable[[str], bool], interrupted: Callable[[], None]) -> None:
    """Waits until it is known that no other job uses the directory.

    Args:
      is_ours: whether the run with an id is known to the ps of this job.
      interrupted: is called in the wait, and raises when the wait must end.

    Raises:
      DirectoryInUseError: another living job uses it.
    """
    self.open()
    if self._left is not None and is_ours(self._left.run):
      with self._lock:
        self._is_free = True
      self._remove_leftovers()
      return
    while not self._looks_free():
      self._check(self._file.read())
      interrupted()
      time.sleep(TIMING.poll_interval)
    self._check(self._file.read())  # a job that was started at the same time
    self._remove_leftovers()

  def write(self, run_id: str, state: str, global_step: int, reason: str = "",
            goal: str = "") -> None:
    """Writes the status of the run; raises tf.errors.OpError."""
    with self._lock:
      self._file.write(run_id, state, global_step, reason, goal=goal)

  @property
  def step_left(self) -> int:
    """The last global step of a run that was cut off before this process began, else -1."""
    left = self._left
    cut_off = left is not None and (left.state == RUN_RUNNING or left.may_resume)
    return left.global_step if cut_off else -1

  def write_failure(self, run_id: str, global_step: int, reason: str) -> None:
    """Writes why this chief has failed, unless the file is another job's; logs a failure.

    The run may go on if the chief is started again, but for one that was released.
    """
    with self._lock:
      status = self._file.read()
      if status is None or not _is_mine(status) or status.state == RUN_ENDED or status.reason:
        return
      try:
        self._file.write(run_id or self.run_id, RUN_FAILED, global_step, reason,
                         may_resume=status.state == RUN_RUNNING)
      except tf.errors.OpError as error:
        _log.warning("the run's status file was not written: %s", error_line(error))

  def _remove_leftovers(self):
    self._file.remove_leftovers()
    remove_leftovers(self._name)

  def _announce(self, global_step):
    try:
      self._file.write(self.run_id, RUN_RUNNING, global_step)
    except tf.errors.OpError as error:
      reason = error.message.rpartition("; ")[2]  # without the name of the file, which is internal
      raise CheckpointError(
        "checkpoint_dir %s cannot be written: %s" % (self._name, reason)) from error

  def _looks_free(self):
    with self._lock:
      if not self._is_free and time.monotonic() - self._began > _INTERVALS * TIMING.status_interval:
        status = self._file.read()
        self._is_free = status in (None, self._left) or status.state != RUN_RUNNING
      return self._is_free

  def _check(self, status):
    if status in (None, self._left) or status.state != RUN_RUNNING or _is_mine(status):
      return
    raise DirectoryInUseError(
      "another job saves into %s: its chief is process %d on %s. Give this job another "
      "--checkpoint_dir, or end that one." % (self._name, status.pid, status.host))


def _is_mine(status) -> bool:
  return (status.host, status.pid) == (socket.gethostname(), os.getpid())


def _is_dead(status) -> bool:
  """Whether the process that wrote a status is known to have ended, or is this one."""
  if _is_mine(status):
    return True
  return status.host == socket.gethostname() and has_ended(status.pid)
