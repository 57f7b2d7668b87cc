"""The run: distinguishes a job's live state from stale state.

Servers keep variables after all clients have gone. So a chief that starts may find the state of its
own run (it was killed and restarted), stale state of an older job, or the partial initialisation of
a killed chief. TensorFlow does not distinguish them. So a run has a random id:

1. The chief writes the id into the checkpoint directory (`RunFile`) and onto every task that keeps
   the job's variables (one control record per container), marked as not initialised.
2. It initialises or restores the variables, and marks the records as initialised.
3. At the end of the job it marks them as ended, which releases the ps.

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

from tf1ps.compat import temporary_path
from tf1ps.state import control

_log = logging.getLogger("tf1ps")

RUN_RUNNING = "running"
RUN_ENDED = "ended"
RUN_FAILED = "failed"
_PREFIX = "run:"
_MAX_BYTES = 2 ** 16  # more than a status file has


class RunRecord(NamedTuple):
  """The run in one container of one task."""

  id: str  # random
  initialised: bool  # whether initialisation is complete
  ended: bool  # whether the job has ended, so that the ps may leave
  failed: bool  # whether the job failed
  jobs: dict  # the cluster of the chief: {job: addresses}
  signature: list  # the shared variables of the chief's graph
  writes: int  # how often the chief has initialised or restored this run


def new_run_id() -> str:
  """Returns a random id for a run."""
  return uuid.uuid4().hex[:16]


def _name(container: str) -> str:
  return _PREFIX + container


def find_run(records: Dict[str, control.ControlRecord], container: Optional[str],
             max_age: float = math.inf) -> Optional[RunRecord]:
  """Returns the run in a container, or None; for container None the newest of all containers.

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
  """Returns the record that marks a container's live run as not initialised; {} if none is live."""
  found = find_run(records, container)
  if found is None or found.ended or not found.initialised:
    return {}
  return {_name(container): dict(found._replace(initialised=False)._asdict())}


class RunStatus(NamedTuple):
  """The content of the status file in a checkpoint directory."""

  run: str  # the run's id
  state: str  # one of RUN_...
  global_step: int  # the last one that the chief read
  time: float  # when the chief wrote the file, in seconds since the epoch by its clock
  host: str = ""  # the chief's
  pid: int = 0  # its process id there
  reason: str = ""  # why the run has failed
  may_resume: bool = False  # of a failed one: whether the chief may be started again and go on
  goal: str = ""  # of one that has ended: what was asked for, as flags


class RunFile:
  """The run's status file in the checkpoint directory, which the chief rewrites every few seconds.

  An evaluator never connects to the cluster; it reads here whether the run is alive.
  """

  NAME = "tf1ps-run.json"

  def __init__(self, checkpoint_dir: str):
    self._path = os.path.join(checkpoint_dir, self.NAME)
    self._directory = checkpoint_dir
    self._written_at = -math.inf
    self._is_over = False
    self._lock = threading.Lock()

  def read(self) -> Optional[RunStatus]:
    """Returns the status, or None if the file cannot be read."""
    try:
      with tf.gfile.GFile(self._path, "r") as file:
        # Without a size it reads as many bytes as the path has now, which may be a newer file's.
        return RunStatus(**json.loads(file.read(_MAX_BYTES)))
    except (tf.errors.OpError, ValueError, TypeError):
      return None

  def write(self, run: str, state: str, global_step: int, reason: str = "",
            may_resume: bool = False, goal: str = "") -> None:
    """Replaces the file atomically; raises tf.errors.OpError if that fails."""
    with self._lock:
      self._is_over = state != RUN_RUNNING
      self._replace(run, state, global_step, reason, may_resume, goal)

  def touch(self, run: str, global_step: int, every: float) -> None:
    """Writes that the run is alive, at most once per `every` seconds; logs a failure.

    It writes nothing after the end of the run, because the last heartbeat may follow the end.
    """
    with self._lock:
      if self._is_over or time.monotonic() - self._written_at < every:
        return
      try:
        self._replace(run, RUN_RUNNING, global_step)
      except tf.errors.OpError as error:
        _log.warning("the run's status file was not written: %s", error)

  def remove_leftovers(self) -> None:
    """Removes what killed processes have left of a write. Only the file's one writer calls it."""
    with self._lock:
      try:
        for name in tf.gfile.ListDirectory(self._directory):
          if name.startswith(self.NAME + ".") and name.endswith(".tmp"):
            tf.gfile.Remove(os.path.join(self._directory, name))
      except tf.errors.OpError as error:
        _log.info("files of ended processes stay in %s: %s", self._directory, error)

  def _replace(self, run: str, state: str, global_step: int, reason: str = "",
               may_resume: bool = False, goal: str = "") -> None:
    status = RunStatus(run, state, int(global_step), time.time(), socket.gethostname(),
                       os.getpid(), reason, may_resume, goal)
    self._written_at = time.monotonic()
    tf.gfile.MakeDirs(self._directory)
    temporary = "%s.%d.tmp" % (self._path, os.getpid())
    with tf.gfile.GFile(temporary, "w") as file:
      file.write(json.dumps(dict(status._asdict())))
    tf.gfile.Rename(temporary, self._path, overwrite=True)


class StopFile:
  """A request of the evaluator, in the checkpoint directory, to end a run early.

  It names the run, so that it ends no later one. The chief looks for it.
  """

  NAME = "tf1ps-stop.json"

  def __init__(self, checkpoint_dir: str):
    self._path = os.path.join(checkpoint_dir, self.NAME)

  def read(self, run: str) -> str:
    """Returns why a run shall end, or ""."""
    try:
      with tf.gfile.GFile(self._path, "r") as file:
        found = json.loads(file.read(_MAX_BYTES))
      return str(found["reason"]) if run and found["run"] == run else ""
    except (tf.errors.OpError, ValueError, KeyError, TypeError):
      return ""

  def write(self, run: str, reason: str) -> None:
    """Requests the end of a run; raises tf.errors.OpError."""
    temporary = temporary_path(self._path)
    with tf.gfile.GFile(temporary, "w") as file:
      file.write(json.dumps({"run": run, "reason": reason}))
    tf.gfile.Rename(temporary, self._path, overwrite=True)
