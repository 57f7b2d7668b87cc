"""The run: what tells live state from leavings.

Servers keep variables after every client has gone, so a chief that starts may find the state of its
own run (it was killed and came back), the leavings of an older job, or an initialisation that a
killed chief left half done. All three look alike to TensorFlow. So a run has a random id, and

1. the chief writes the id into the checkpoint directory (`RunFile`) and onto every task that keeps
   the job's variables (a control record for each container), marked as not initialised;
2. it initialises or restores, and marks the records as initialised;
3. at the end of the job it marks them as ended: that releases the ps.

Live state is kept only where the ids match, initialisation was completed and the run has not ended.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import uuid
from typing import Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.state import control

_log = logging.getLogger("tf1ps")

RUN_RUNNING = "running"
RUN_ENDED = "ended"
RUN_FAILED = "failed"
_PREFIX = "run:"
_ENOUGH = 2 ** 16  # bytes; more than a status file has


class RunRecord(NamedTuple):
  """The run in one container of one task."""

  id: str  # random
  initialised: bool  # whether initialisation was completed
  ended: bool  # whether the job has ended; the ps may leave
  failed: bool  # whether it ended without having done everything
  jobs: dict  # the cluster as the chief knows it
  signature: list  # the shared variables of the chief's graph
  writes: int  # how often this run was initialised or restored


def new_run_id() -> str:
  """A random id for a run."""
  return uuid.uuid4().hex[:16]


def _name(container: str) -> str:
  return _PREFIX + container


def find_run(records: Dict[str, control.ControlRecord], container: Optional[str],
         max_age: float = math.inf) -> Optional[RunRecord]:
  """The run in a container among control records, or None.

  Args:
    records: the control records of one task.
    container: the job's container; None: the run that was written last, in whichever.
    max_age: seconds; a run that was written earlier than that is left out.
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
  """Writes the run onto a task; raises control.ControlError."""
  table.put({_name(container): dict(record._asdict())})


def uninitialised(records: Dict[str, control.ControlRecord], container: str) -> Dict[str, dict]:
  """The record of a container's live run as not initialised; {} where there is none to change."""
  found = find_run(records, container)
  if found is None or found.ended or not found.initialised:
    return {}
  return {_name(container): dict(found._replace(initialised=False)._asdict())}


class RunStatus(NamedTuple):
  """What the status file in a checkpoint directory says."""

  run: str  # the run's id
  state: str  # RUNNING, ENDED or FAILED
  global_step: int  # as the chief last saw it
  time: float  # seconds since the epoch when it was written, by the chief's clock


class RunFile:
  """The run's status file in the checkpoint directory.

  The chief rewrites it every few seconds, so that an evaluator, which never connects to the
  cluster, sees whether the run is alive.
  """

  NAME = "tf1ps-run.json"

  def __init__(self, checkpoint_dir: str):
    self._path = os.path.join(checkpoint_dir, self.NAME)
    self._directory = checkpoint_dir
    self._written_at = -math.inf
    self._is_over = False
    self._lock = threading.Lock()

  def read(self) -> Optional[RunStatus]:
    """The status, or None where there is no file that can be read."""
    try:
      with tf.gfile.GFile(self._path, "r") as file:
        # Without a size it would read as much as the path's file has by now, which may be another.
        return RunStatus(**json.loads(file.read(_ENOUGH)))
    except (tf.errors.OpError, ValueError, TypeError):
      return None

  def write(self, run: str, state: str, global_step: int) -> None:
    """Replaces the file in one step; raises tf.errors.OpError where it cannot be written."""
    with self._lock:
      self._is_over = state != RUN_RUNNING
      self._replace(RunStatus(run, state, int(global_step), time.time()))

  def touch(self, run: str, global_step: int, every: float) -> None:
    """Writes that the run goes on, once in so many seconds; a failure is only said.

    Nothing is written once the run is over: the heartbeat may come later than the end.
    """
    with self._lock:
      if self._is_over or time.monotonic() - self._written_at < every:
        return
      try:
        self._replace(RunStatus(run, RUN_RUNNING, int(global_step), time.time()))
      except tf.errors.OpError as error:
        _log.warning("the run's status file was not written: %s", error)

  def _replace(self, status: RunStatus) -> None:
    self._written_at = time.monotonic()
    tf.gfile.MakeDirs(self._directory)
    temporary = "%s.%d.tmp" % (self._path, os.getpid())
    with tf.gfile.GFile(temporary, "w") as file:
      file.write(json.dumps(dict(status._asdict())))
    tf.gfile.Rename(temporary, self._path, overwrite=True)
