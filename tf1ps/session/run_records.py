"""The record of a run on each task that keeps the state of the job."""

from __future__ import annotations

import logging
import time
from typing import Dict, List, Optional

from tf1ps.cluster import ServerRecord, probe_task, record_of_task
from tf1ps.compat import RETRIES, TIMING
from tf1ps.state import (
  CLUSTER_RECORD,
  PROGRAM_RECORD,
  ControlError,
  ControlRecord,
  RunRecord,
  find_run,
  table_for,
  write_run,
)

_log = logging.getLogger("tf1ps")


class RunRecords:
  """The record of the run on each task that keeps the state of the job.

  The chief writes the record on these tasks in turn. A run is whole if all of them have the same
  record.

  Attributes:
    state_tasks: the tasks that keep the job's variables: the ps, or the chief without ps.
  """

  def __init__(self, record: ServerRecord):
    """Prepares the access and makes no call. `record` belongs to the server of this task."""
    cluster = record.cluster
    self.state_tasks = cluster.ps or [cluster.control_task]
    self._container = record.container
    self._control_task = cluster.control_task
    self._tables = {task: table_for(record, task) for task in self.state_tasks}

  def read(self, task) -> Dict[str, ControlRecord]:
    """Returns all control records of a state task; raises ControlError."""
    return self._tables[task].read()

  def runs(self) -> List[Optional[RunRecord]]:
    """Returns the record, or None, of each state task; raises ControlError."""
    return [find_run(self.read(task), self._container) for task in self.state_tasks]

  def write(self, run: RunRecord) -> None:
    """Writes the record on each state task; raises ControlError."""
    for table in self._tables.values():
      write_run(table, self._container, run)

  def write_where_possible(self, run: RunRecord, patience: float = 0.0) -> None:
    """Writes the record, and continues if a task does not answer.

    A silent task, such as a stopped process, has `patience` seconds to come back.
    """
    until = time.monotonic() + patience
    # The task with the heartbeats comes last, because live tasks read the record there.
    for task in sorted(self.state_tasks, key=lambda task: task == self._control_task):
      tries = 0
      while True:
        try:
          write_run(self._tables[task], self._container, run)
          break
        except ControlError as error:  # the write may have succeeded: the next try shows whether
          tries += 1
          if tries < RETRIES.release.tries or (
              time.monotonic() < until and probe_task(task).is_silent):
            continue
          _log.warning("%s may still be waiting for the end of the job: %s", task.name, error)
          break

  def clusters(self) -> Dict[object, dict]:
    """Returns each ps's description of the cluster; a server of plain TensorFlow has none."""
    until = time.monotonic() + TIMING.cluster_record_limit
    clusters = {}
    for task in self.state_tasks:
      written = self.read(task).get(CLUSTER_RECORD)
      # The description of a ps in this process: the ps may never call `join`, which writes it.
      here = record_of_task(task)
      while written is None and here is None and task.job == "ps" and time.monotonic() < until:
        time.sleep(TIMING.fast_poll_interval)
        written = self.read(task).get(CLUSTER_RECORD)
      if written is not None:
        clusters[task] = written.value
      elif here is not None:
        clusters[task] = here.cluster.to_json()
    return clusters

  def may_wait_for_queues(self, task) -> bool:
    """Whether a task's program may run its own sessions, because its records show no `join`.

    Raises ControlError.
    """
    if record_of_task(task) is not None:
      return False  # the task is in this process, whose chief begins a run
    records = self.read(task)
    return CLUSTER_RECORD not in records or (
      PROGRAM_RECORD in records and records[PROGRAM_RECORD].value["has_sessions"])

  def close(self) -> None:
    """Closes the sessions, within the limit of a call."""
    for table in self._tables.values():
      table.close()
