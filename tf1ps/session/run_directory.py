"""The checkpoint directory of a run: announces the run there, and refuses a second living run.

1. `open` reads the status file that an earlier run may have left. If that run has ended, or its
   process is known to have ended (compat/process_identity.py), the chief announces its own run
   immediately, before it builds its graph: an evaluator sees that the run lives.
2. Otherwise the earlier run may be alive, even if its file is damaged, or if there are checkpoints
   but no file. Beside its other work, the chief watches the file for longer than a living chief
   leaves its file unchanged. After that it announces its run.
3. `await_free` waits for the end of that watch. If the file has changed, another job uses the
   directory.
4. `beat` detects another chief that has taken the directory because it mistook a pause of this
   chief, or of this chief's machine, for this chief's end.
5. `note_done` writes which workers have done their part. So the next process of the chief knows
   these workers, even if the ps that kept their reports are lost.

The file cannot distinguish two sessions of the same process, so `claim` and `give_back` do.

The watch compares the file's contents; it never compares the clocks of two machines.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Callable, Dict, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import STATE_FILE, CheckpointError, is_hidden, remove_leftovers
from tf1ps.cluster import Cluster, probe_tasks
from tf1ps.compat import TIMING, Error, error_line, has_ended, own_identity
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile, StopFile, new_run_id

_log = logging.getLogger("tf1ps")
# A living chief leaves its file unchanged for less than this number of write intervals.
_INTERVALS = 1.6
_claims = {}  # a process global, by process and directory: the `RunDirectory` of the open session
_claims_lock = threading.Lock()


class DirectoryInUseError(Error, RuntimeError):
  """Another living job saves into the checkpoint directory of this job."""


class PartDoneError(Error, RuntimeError):
  """An earlier process of this task has done the task's part in the run: nothing is left to do."""


def check_not_over(checkpoint_dir: Optional[str], cluster: Cluster, goal: str = "",
                   last_step: Optional[int] = None) -> None:
  """Raises PartDoneError if a run had ended before this task was started.

  A run counts as ended if the status file says that the run was asked for the same `goal` or
  reached `last_step`, and if no task that a job would need comes within `TIMING.ended_run_wait`.
  """
  if not checkpoint_dir or not RunFile(checkpoint_dir).has_ended(goal, last_step):
    return
  needed = cluster.ps
  if not needed and cluster.is_chief:
    needed = [task for task in cluster.replicas if task != cluster.task]
  elif not needed:
    needed = [cluster.chief]  # only the chief: the other workers may wait for the chief, too
  until = time.monotonic() + TIMING.ended_run_wait
  while needed:
    if any(result.is_up for result in probe_tasks(needed)):
      return
    if time.monotonic() >= until:
      raise PartDoneError("the run in %s has ended with %s" % (
        checkpoint_dir, goal or "step %d" % last_step))
    time.sleep(TIMING.poll_interval)


class RunDirectory:
  """The chief's access to the run's status file."""

  def __init__(self, checkpoint_dir: str, heartbeat_timeout: float, address: str = ""):
    """Prepares the access; `open` reads the file.

    Args:
      checkpoint_dir: the directory; it need not exist.
      heartbeat_timeout: the seconds after which an evaluator takes the run for lost.
      address: the address of the task that keeps the job's records.
    """
    self.name = checkpoint_dir
    self._file = RunFile(checkpoint_dir, address)
    self._every = min(TIMING.status_interval, heartbeat_timeout / 6)
    self._stop = StopFile(checkpoint_dir)
    self._looked_at = 0.0
    self._began = None
    self._left = None  # the status from before this process
    self.run_cut_off = ""  # the id of the run in that status, if the run did not end
    self._is_free = False
    self._lock = threading.RLock()
    self.run_id = ""  # the id of the run that may go on, else a new id
    self._claim = os.getpid(), os.path.realpath(checkpoint_dir)  # a fork inherits no claim

  def claim(self) -> None:
    """Raises DirectoryInUseError if another open session of this process uses the directory."""
    with _claims_lock:
      if _claims.setdefault(self._claim, self) is not self:
        raise DirectoryInUseError(
          "another session of this process saves into %s and is still open. Close that session "
          "first, or give this session another checkpoint_dir." % self.name)

  def give_back(self) -> None:
    """Lets other sessions of this process claim the directory."""
    with _claims_lock:
      if _claims.get(self._claim) is self:
        del _claims[self._claim]

  def open(self) -> None:
    """Reads the file, and announces the run if no other job can be using the directory.

    Raises CheckpointError if the file cannot be written, or if only another user may read it.
    """
    with self._lock:
      if self._began is not None:
        return
      self._began, self._left = time.monotonic(), self._file.read()
      was_running = self._left is not None and self._left.state == RUN_RUNNING
      goes_on = was_running or self._left is not None and self._left.may_resume
      self.run_id = self._left.run if goes_on else new_run_id()
      if goes_on:
        self.run_cut_off, self._file.done = self._left.run, self._left.done
      self._is_free = not (was_running and not _is_dead(self._left) or self._is_unknown())
      if self._is_free:
        self._announce(*(self._left.global_step, self._left.goal) if goes_on else (-1, ""))

  def _is_unknown(self) -> bool:
    """Whether a run may live here without a readable file: the file is damaged, or gone."""
    if self._left is not None:
      return False
    path = self._file.path
    if is_hidden(path):
      raise CheckpointError(
        "this user must not read %s, so a job of another user may save there. Give this job "
        "another --checkpoint_dir, or the right to read that file" % path)
    level, problem = logging.WARNING, "%s is damaged" % path
    if not tf.gfile.Exists(path):
      level, problem = logging.INFO, "there are checkpoints, but no %s" % path
      if not tf.gfile.Exists(os.path.join(self.name, STATE_FILE)):
        return False
    _log.log(level, "%s: the chief looks for %.1f s whether a living job writes it", problem,
             _INTERVALS * TIMING.status_interval)
    return True

  def beat(self, run_id: str, global_step: int, now: bool = False) -> None:
    """Writes that the run is alive, at intervals or, with `now`, in this call.

    `run_id` is "" before the id is known. A full disk raises no error. Raises DirectoryInUseError
    if another chief has taken the directory.
    """
    with self._lock:
      if self._looks_free():
        other = self._file.touch(
          run_id or self.run_id, global_step, 0.0 if now else self._every)
        if other is not None:
          raise self._in_use(other)

  @property
  def done(self) -> List[str]:
    """The names of the workers that have done their part, also in a run that was cut off."""
    return self._file.done.split()

  def note_done(self, run_id: str, global_step: int, is_done: Dict[str, bool]) -> None:
    """Writes the names of the workers that have done their part, before these workers may leave.

    `is_done` has the members of this run. A worker that is not in `is_done` stays in the file.
    """
    with self._lock:
      names = sorted(name for name in {*is_done, *self.done} if is_done.get(name, True))
      if names != self.done and self._looks_free():
        self._file.done = " ".join(names)
        self._file.touch(run_id, global_step, 0.0)

  def other_run(self, run_id: str) -> str:
    """Returns the id of another run that has trained in this directory, or ""."""
    left = self._left
    is_other = left is not None and left.run != run_id and left.global_step >= 0
    return left.run if is_other else ""

  def go_on_with(self, run_id: str) -> None:
    """Continues the run that the members of the job train, even if the file names another run."""
    if self._left is not None and self._left.run != run_id:
      _log.warning("%s is of run %s, and run %s lives: the chief replaces it", self._file.path,
                   self._left.run, run_id)
    self.run_id, self._left, self.run_cut_off, self._file.done = run_id, None, "", ""

  def stop_request(self, run_id: str) -> str:
    """Returns why the evaluator asks for the end of a run, or ""; reads the file at intervals."""
    now = time.monotonic()
    if now - self._looked_at < self._every:
      return ""
    self._looked_at = now
    return self._stop.read(run_id)

  def await_free(self, is_ours: Callable[[str], bool], interrupted: Callable[[], None]) -> None:
    """Waits until it is known that no other job uses the directory.

    Args:
      is_ours: whether the run with an id is known to the ps of this job.
      interrupted: called during the wait; raises when the wait must end.

    Raises:
      DirectoryInUseError: another living job uses the directory.
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

  def has_trained(self, goal: str) -> bool:
    """Whether a run of this goal was cut off between its last checkpoint and its end."""
    left = self._left
    return left is not None and left.goal == goal and (
      left.state == RUN_RUNNING or left.may_resume)

  @property
  def step_left(self) -> int:
    """The last global step of a run that was cut off before this process began, else -1."""
    left = self._left
    cut_off = left is not None and (left.state == RUN_RUNNING or left.may_resume)
    return left.global_step if cut_off else -1

  def write_failure(self, run_id: str, global_step: int, reason: str) -> None:
    """Writes why this chief has failed, unless another job has written the file.

    The run may go on if the chief is started again, except after its release.
    """
    with self._lock:
      status = self._file.read()
      if status is None or not _is_mine(status) or status.state == RUN_ENDED or status.reason:
        return
      try:
        self._file.write(run_id or self.run_id, RUN_FAILED, global_step, reason,
                         may_resume=status.state == RUN_RUNNING, goal=status.goal)
      except tf.errors.OpError as error:
        _log.warning("the run's status file was not written: %s", error_line(error))

  def _remove_leftovers(self):
    self._file.remove_leftovers()
    remove_leftovers(self.name)

  def _announce(self, global_step, goal):
    try:
      self._file.write(self.run_id, RUN_RUNNING, global_step, goal=goal)
    except tf.errors.OpError as error:
      reason = error.message.rpartition("; ")[2]  # without the name of the file, which is internal
      raise CheckpointError(
        "checkpoint_dir %s cannot be written: %s" % (self.name, reason)) from error

  def _looks_free(self):
    with self._lock:
      if not self._is_free and time.monotonic() - self._began > _INTERVALS * TIMING.status_interval:
        status = self._file.read()
        self._is_free = status in (None, self._left) or status.state != RUN_RUNNING
      return self._is_free

  def _check(self, status):
    if status in (None, self._left) or status.state != RUN_RUNNING or _is_mine(status):
      return
    raise self._in_use(status)

  def _in_use(self, status) -> DirectoryInUseError:
    return DirectoryInUseError(
      "another job saves into %s: its chief is process %d on %s. Give this job another "
      "--checkpoint_dir, or end that job." % (self.name, status.pid, status.host))


def _is_mine(status) -> bool:
  return status.process == own_identity()


def _is_dead(status) -> bool:
  """Whether the process that wrote a status is known to have ended, or is this process."""
  return _is_mine(status) or has_ended(status.process)
