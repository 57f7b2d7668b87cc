"""The run's record on each task that keeps the job's variables, as one task of the job sees them.

These tasks, the holders, are the ps; without ps, the chief. The chief writes the record on all of
them, one after the other; a run is whole where all of them have the same.
"""

from __future__ import annotations

import logging
import time
from typing import Dict, List, Optional

from tf1ps.cluster import server as server_lib
from tf1ps.compat.timing import TIMING
from tf1ps.state import control
from tf1ps.state import run as run_lib

_log = logging.getLogger("tf1ps")


class RunRecords:
  """The control records of the holders.

  Attributes:
    holders: the tasks that keep the job's variables.
  """

  def __init__(self, record: server_lib.ServerRecord):
    """Prepares access; no call is made yet. `record` is that of this task's server."""
    cluster = record.cluster
    self.holders = cluster.ps or [cluster.control_task]
    self._container = record.container
    self._control_task = cluster.control_task
    self._tables = {task: control.ControlTable(record.target, cluster.task, task)
                    for task in self.holders}

  def read(self, task) -> Dict[str, control.Record]:
    """All control records of one holder; raises control.ControlError."""
    return self._tables[task].read()

  def runs(self) -> List[Optional[run_lib.RunRecord]]:
    """The run's record on each holder, None where there is none; raises control.ControlError."""
    return [run_lib.find(self.read(task), self._container) for task in self.holders]

  def write(self, run: run_lib.RunRecord) -> None:
    """Writes the run's record on each holder; raises control.ControlError."""
    for table in self._tables.values():
      run_lib.write(table, self._container, run)

  def write_where_possible(self, run: run_lib.RunRecord) -> None:
    """Like `write`, and goes on where a holder does not answer."""
    # The task with the heartbeats last: the others look there while they live.
    for task in sorted(self.holders, key=lambda task: task == self._control_task):
      for is_last in (False, True):  # a call may fail whose write arrived: the next one tells
        try:
          run_lib.write(self._tables[task], self._container, run)
          break
        except control.ControlError as error:
          if is_last:
            _log.warning("%s may not have been released: %s", task.name, error)

  def clusters(self) -> Dict[object, dict]:
    """What each ps was told of the cluster, as JSON; a server of stock's does not tell."""
    until = time.monotonic() + TIMING.cluster_record_limit
    told = {}
    for task in self.holders:
      found = self.read(task).get(control.CLUSTER)
      while found is None and task.job == "ps" and time.monotonic() < until:
        time.sleep(TIMING.fast_poll_interval)
        found = self.read(task).get(control.CLUSTER)
      if found is not None:
        told[task] = found.value
    return told

  def close(self) -> None:
    """Closes the sessions, within the limits of a call."""
    for table in self._tables.values():
      table.close()
