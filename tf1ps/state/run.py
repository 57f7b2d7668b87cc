"""The run: distinguishes a job's live state from stale state.

Servers keep variables after all clients have gone. So a chief that starts may find the state of its
own run (it was killed and restarted), stale state of an older job, or the partial initialisation of
a killed chief. TensorFlow does not distinguish these states. So a run has a random id:

1. The chief writes the id into the checkpoint directory (`RunFile`) and onto every task that keeps
   the job's variables (one control record per container), marked as not initialised.
2. It initialises or restores the variables, and marks the records as initialised.
3. At the end of the job it marks the records as ended, which releases the ps.

The chief keeps state only if the ids match, initialisation is complete and the run has not ended.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
import uuid
from typing import Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import own_identity, temporary_path
from tf1ps.state import control
from tf1ps.state.run_status import RUN_ENDED, RUN_FILE, RUN_RUNNING, RunStatus, parse_run_status

_log = logging.getLogger("tf1ps")

_PREFIX = "run:"
_MAX_BYTES = 2 ** 16  # more bytes than a status file has


class RunRecord(NamedTuple):
  """The run in a container of a task."""

  id: str  # a random id
  initialised: bool  # whether initialisation is complete
  ended: bool  # whether the job has ended, so that the ps may leave
  failed: bool  # whether the job failed
  jobs: dict  # the cluster of the chief: {job: addresses}
  signature: list  # the shared variables of the chief's graph
  writes: int  # how often the chief has initialised or restored this run
  host: str = ""  # the chief's host
  directory: str = ""  # where the chief saves; "" if it does not save
  inode: str = ""  # the inode of that directory, with its file system; "" if it has none


def new_run_id() -> str:
  """Returns a random id for a run."""
  return uuid.uuid4().hex[:16]


def _name(container: str) -> str:
  return _PREFIX + container


def find_run(records: Dict[str, control.ControlRecord], container: Optional[str],
             max_age: float = math.inf) -> Optional[RunRecord]:
  """Returns the run in a container, or None; container None means the newest run of all containers.

  Records older than `max_age` seconds are ignored.
  """
  if container is None:
    runs = [record for name, record in records.items() if name.startswith(_PREFIX)]
    record = min(runs, key=lambda record: record.age) if runs else None
  else:
    record = records.get(_name(container))
  if record is None or record.age > max_age:
    return None
  return RunRecord(**record.value)


def write_run(table: control.ControlTable, container: str, record: RunRecord) -> None:
  """Writes the run onto a task; raises ControlError."""
  table.put({_name(container): dict(record._asdict())})


def uninitialised(records: Dict[str, control.ControlRecord], container: str) -> Dict[str, dict]:
  """Returns the record that marks a container's live run as not initialised, or {} without one."""
  run = find_run(records, container)
  if run is None or run.ended or not run.initialised:
    return {}
  return {_name(container): dict(run._replace(initialised=False)._asdict())}


class RunFile:
  """The run's status file in the checkpoint directory, which the chief rewrites every few seconds.

  An evaluator never connects to the cluster: it reads in this file whether the run is alive.

  Attributes:
    path: the path of the file.
    done: the names of the workers that have done their part, for the chief's writes.
  """

  NAME = RUN_FILE

  def __init__(self, checkpoint_dir: str, address: str = ""):
    """Prepares; `address`, for the chief's writes, is that of the task with the job's records."""
    self.path = os.path.join(checkpoint_dir, self.NAME)
    self._directory, self._address = checkpoint_dir, address
    self.done = ""
    self._written_at = -math.inf
    self._is_over, self._goal = False, ""
    self._lock = threading.Lock()

  def read(self) -> Optional[RunStatus]:
    """Returns the status, or None if the file cannot be read."""
    try:
      with tf.gfile.GFile(self.path, "r") as file:
        # Without a size, TensorFlow reads as many bytes as the file at the path has now, and that
        # may already be a newer file.
        return parse_run_status(file.read(_MAX_BYTES))
    except (tf.errors.OpError, ValueError, TypeError):
      return None

  def has_ended(self, goal: str = "", last_step: Optional[int] = None) -> bool:
    """Returns whether a run has ended that was asked for this goal, or reached this last step.

    If neither is given, it returns False, because the ended run may be another run.
    """
    status = self.read() if goal or last_step is not None else None
    if status is None or status.state != RUN_ENDED:
      return False
    return status.goal == goal if goal else status.global_step >= last_step

  def write(self, run: str, state: str, global_step: int, reason: str = "",
            may_resume: bool = False, goal: str = "") -> None:
    """Replaces the file atomically; raises tf.errors.OpError if that fails."""
    with self._lock:
      self._is_over, self._goal = state != RUN_RUNNING, goal
      self._replace(run, state, global_step, reason, may_resume, goal)

  def touch(self, run: str, global_step: int, every: float) -> Optional[RunStatus]:
    """Writes that the run is alive, at most once per `every` seconds; logs a failure.

    On a full disk it overwrites the file in place, because an evaluator considers a silent run
    lost. It writes nothing after the end of the run, because the last heartbeat may follow the end.
    If a running chief in another process has written the file since the last write, that status
    stays, and is returned.
    """
    with self._lock:
      if self._is_over or time.monotonic() - self._written_at < every:
        return None
      there = self.read() if self._written_at > -math.inf else None
      if there is not None and there.state == RUN_RUNNING and there.process != own_identity():
        return there
      try:
        self._replace(run, RUN_RUNNING, global_step, goal=self._goal)
      except tf.errors.OpError as error:
        if not self._overwrite(self._text(run, RUN_RUNNING, global_step, goal=self._goal)):
          _log.warning("the run's status file was not written: %s", error)
      return None

  def remove_leftovers(self) -> None:
    """Removes the temporary files of killed processes. Only the writer of the file calls it."""
    with self._lock:
      try:
        for name in tf.gfile.ListDirectory(self._directory):
          if name.startswith(self.NAME + ".") and name.endswith(".tmp"):
            tf.gfile.Remove(os.path.join(self._directory, name))
      except tf.errors.OpError as error:
        _log.info("files of ended processes stay in %s: %s", self._directory, error)

  def _replace(self, run: str, state: str, global_step: int, reason: str = "",
               may_resume: bool = False, goal: str = "") -> None:
    text = self._text(run, state, global_step, reason, may_resume, goal)
    self._written_at = time.monotonic()
    tf.gfile.MakeDirs(self._directory)
    temporary = "%s.%s.tmp" % (self.path, own_identity())
    with tf.gfile.GFile(temporary, "w") as file:
      file.write(text)
    tf.gfile.Rename(temporary, self.path, overwrite=True)

  def _text(self, run: str, state: str, global_step: int, reason: str = "",
            may_resume: bool = False, goal: str = "") -> str:
    return json.dumps(dict(RunStatus(
      run, state, int(global_step), time.time(), socket.gethostname(), os.getpid(), reason,
      may_resume, goal, own_identity(), self._address, self.done)._asdict()))

  def _overwrite(self, text: str) -> bool:
    """Writes into the disk block that the file already has; returns whether the write succeeded.

    A reader that finds only a part of the text treats the file as unchanged.
    """
    try:
      with open(self.path, "r+") as file:
        file.write(text)
        file.truncate()
      return True
    except OSError:
      return False


class StopFile:
  """A request of the evaluator, in the checkpoint directory, to end a run early.

  The request names the run, so that it does not end a later run. The chief looks for the file.
  """

  NAME = "tf1ps-stop.json"

  def __init__(self, checkpoint_dir: str):
    self._path = os.path.join(checkpoint_dir, self.NAME)

  def read(self, run: str) -> str:
    """Returns why the evaluator asks for the end of a run, or ""."""
    try:
      with tf.gfile.GFile(self._path, "r") as file:
        request = json.loads(file.read(_MAX_BYTES))
      return str(request["reason"]) if run and request["run"] == run else ""
    except (tf.errors.OpError, ValueError, KeyError, TypeError):
      return ""

  def write(self, run: str, reason: str) -> None:
    """Requests the end of a run; raises tf.errors.OpError."""
    temporary = temporary_path(self._path)
    with tf.gfile.GFile(temporary, "w") as file:
      file.write(json.dumps({"run": run, "reason": reason}))
    tf.gfile.Rename(temporary, self._path, overwrite=True)
