"""The status of a run, as the status file in its checkpoint directory has it.

This module does not import TensorFlow. run.py needs TensorFlow to read a file at a URL.
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
  global_step: int  # the last global step that the chief read
  time: float  # when the chief wrote the file, in seconds since the epoch by the chief's clock
  host: str = ""  # the chief's host
  pid: int = 0  # the chief's process id on that host
  reason: str = ""  # why the run has failed
  may_resume: bool = False  # after a failure: whether a new process of the chief may continue it
  # The requested end, as flags. It is set once the run has ended or, in a job without ps, once the
  # last checkpoint is saved.
  goal: str = ""
  process: str = ""  # the identity of the chief's process; "" from an earlier release
  address: str = ""  # the address of the task that keeps the job's records, for tf1ps-status
  done: str = ""  # the names of the workers that have done their part, as the chief has heard

  @property
  def was_stopped(self) -> bool:
    """Whether a signal has ended the run, which may go on."""
    return self.state == RUN_FAILED and self.reason.startswith(ENDED_BY_SIGNAL)


_OF_EACH_TYPE = RunStatus("", "", 0, 0.0)


def parse_run_status(text: str) -> RunStatus:
  """Returns the status in a file of any release; raises ValueError or TypeError for other texts."""
  values = json.loads(text)
  status = RunStatus(**{name: values[name] for name in RunStatus._fields if name in values})
  for value, default in zip(status, _OF_EACH_TYPE):
    if not isinstance(value, (int, float) if isinstance(default, float) else type(default)):
      raise ValueError("%r is not a value of a run's file" % (value,))
  return status
