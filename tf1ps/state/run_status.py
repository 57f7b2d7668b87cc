"""The status of a run, as the status file in its checkpoint directory has it.

This module does not import TensorFlow, which the file itself needs where it is at a URL (run.py).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tf1ps.compat import ENDED_BY_SIGNAL

RUN_FILE = "tf1ps-run.json"
RUN_RUNNING = "running"
RUN_ENDED = "ended"
RUN_FAILED = "failed"


class RunStatus(NamedTuple):
  """The content of the status file in a checkpoint directory."""

  run: str  # the run's id
  state: str  # RUN_RUNNING, RUN_ENDED or RUN_FAILED
  global_step: int  # the last that the chief read
  time: float  # when the chief wrote the file, in seconds since the epoch by its clock
  host: str = ""  # the chief's
  pid: int = 0  # its process id there
  reason: str = ""  # why the run has failed
  may_resume: bool = False  # after a failure: whether the chief may be started again and go on
  # What was asked for, as flags, once the run has ended, or, in a job without ps, once its last
  # checkpoint is saved.
  goal: str = ""
  process: str = ""  # the identity of the chief's process; "" from an earlier release
  address: str = ""  # of the task that keeps the job's records, for tf1ps-status
  done: str = ""  # the names of the workers that have done their part, as the chief has heard

  @property
  def was_stopped(self) -> bool:
    """Whether a signal has ended the run, which may go on."""
    return self.state == RUN_FAILED and self.reason.startswith(ENDED_BY_SIGNAL)


_OF_EACH_TYPE = RunStatus("", "", 0, 0.0)


def parse_run_status(text: str) -> RunStatus:
  """Returns the status that a file of a release has; else raises ValueError or TypeError."""
  values = json.loads(text)
  status = RunStatus(**{name: values[name] for name in RunStatus._fields if name in values})
  for value, default in zip(status, _OF_EACH_TYPE):
    if not isinstance(value, (int, float) if isinstance(default, float) else type(default)):
      raise ValueError("%r is not a value of a run's file" % (value,))
  return status
