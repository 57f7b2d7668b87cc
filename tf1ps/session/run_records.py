"""The run's record on each task that keeps the job's variables, as one task of the job sees them.

These tasks, the holders, are the ps; without ps, the chief. The chief writes the record on all of
them, one after the other; a run is whole where all of them have the same.
"""

from __future__ import annotations

import logging
import time
from typing import Dict, List, Optional

from tf1ps.cluster import ServerRecord
from tf1ps.compat import TIMING
from tf1ps.state import (
  CLUSTER_RECORD,
  ControlError,
  ControlRecord,
  ControlTable,
  RunRecord,
  find_run,
  write_run,
)

_log = logging.getLogger("tf1ps")


class RunRecords:
  """The control records of the holders.

  Attributes:
    holders: the tasks that keep the job's variables.
  """

  def __init__(self, record: ServerRecord):
    """Prepares access; no call is made yet. `record` is that of this task's server."""
    cluster = record.cluster
    self.holders = cluster.ps or [cluster.control_task]
    self._container = record.container
    self._control_task = cluster.control_task
    self._tables = {task: ControlTable(record.target, cluster.task, task)
                    for task in self.holders}

  def read(self, task) -> Dict[str, ControlRecord]:
    """All control records of one holder; raises control.ControlError."""
    return self._tables[task].read()

  def runs(self) -> List[Optional[RunRecord]]:
    """The run's record on each holder, None where there is none; raises control.ControlError."""
    return [find_run(self.read(task), self._container) for task in self.holders]

  def write(self, run: RunRecord) -> None:
    """Writes the run's record on each holder; raises control.ControlError."""
    for table in self._tables.values():
      write_run(table, self._container, run)

  def write_where_possible(self, run: RunRecord) -> None:
    """Like `write`, and goes on where a holder does not answer."""
    # The task with the heartbeats last: the others look there while they live.
    for task in sorted(self.holders, key=lambda task: task == self._control_task):
      for is_last in (False, True):  # a call may fail whose write arrived: the next one tells
        try:
          write_run(self._tables[task], self._container, run)
          break
        except ControlError as error:
          if is_last:
            _log.warning("%s may not have been released: %s", task.name, error)

  def clusters(self) -> Dict[object, dict]:
    """What each ps was told of the cluster, as JSON; a server of stock's does not tell."""
    until = time.monotonic() + TIMING.cluster_record_limit
    told = {}
    for task in self.holders:
      found = self.read(task).get(CLUSTER_RECORD)
      while found is None and task.job == "ps" and time.monotonic() < until:
        time.sleep(TIMING.fast_poll_interval)
        found = self.read(task).get(CLUSTER_RECORD)
      if found is not None:
        told[task] = found.value
    return told

  def close(self) -> None:
    """Closes the sessions, within the limits of a call."""
    for table in self._tables.values():
      table.close()
