"""The status of a job, as values and as JSON. This module does not import TensorFlow."""

from __future__ import annotations

import json
from typing import List, NamedTuple, Optional

LOST = "lost"  # silent for longer than the job's --heartbeat_timeout
SILENT = "silent"  # silent for longer than a living task would be
ABSENT = "absent"  # the task has sent no heartbeat
STALLED = "stalled"  # the task's step lasts much longer than its earlier steps


class TaskStatus(NamedTuple):
  """A task of a job."""

  task: str  # "worker 1"
  role: str  # "chief", "worker" or "ps"
  host: str  # "" if not known
  pid: Optional[int]
  state: str  # starting, training, serving, done, failed, lost, silent, absent or stalled
  reason: str  # "waits for ...", "is failed: ...", "is lost: ..."; ""
  global_step: Optional[int]  # the last global step that the task read
  steps: Optional[int]  # the steps of the task's process
  examples: Optional[int]
  steps_per_second: Optional[float]
  examples_per_second: Optional[float]
  loss: Optional[float]
  gradient_age_mean: Optional[float]  # in global steps
  gradient_age_highest: Optional[int]
  recoveries: int  # sessions after the first
  last_seen: Optional[float]  # seconds since its last heartbeat
  stalled: Optional[float] = None  # seconds of the step that stalls


class PsStatus(NamedTuple):
  """The estimated load of a ps: the traffic of a chief's step, times the steps of all workers."""

  task: str  # "ps 0"
  address: str
  problem: str  # why the ps does not answer; ""
  bytes_sent_per_second: Optional[float]  # to workers; None: not known
  bytes_received_per_second: Optional[float]
  messages_per_second: Optional[float]  # both ways


class QueueStatus(NamedTuple):
  """A queue of tf1ps on a ps."""

  name: str
  kind: str
  task: str
  size: int
  capacity: Optional[int]  # None: no limit
  waiting: List[str]  # "worker 1: get(4), 12.5 s"


class CheckpointStatus(NamedTuple):
  """The last checkpoint, as of the chief's last heartbeat."""

  directory: str
  global_step: int
  age: float  # seconds


class JobStatus(NamedTuple):
  """A job on the ps."""

  container: str  # "": the default container
  run: str  # the run's id; "" before the run begins
  state: str  # "starting", "running", "ended" or "failed"
  global_step: Optional[int]
  steps_per_second: float  # of all workers
  examples_per_second: float
  tasks: List[TaskStatus]
  ps: List[PsStatus]
  queues: List[QueueStatus]
  checkpoint: Optional[CheckpointStatus]
  checkpoint_note: str  # why the job has no checkpoint


class Status(NamedTuple):
  """The answer of a ps."""

  asked: str  # "ps 0 at host:port"
  time: float  # seconds since the epoch, by this machine's clock
  jobs: List[JobStatus]


def status_as_json(status: Status) -> str:
  """Returns the status as one line of JSON, with null for unknown values."""
  jobs = []
  for job in status.jobs:
    values = job._asdict()
    for name in _LISTS:
      values[name] = [row._asdict() for row in values[name]]
    values["checkpoint"] = None if job.checkpoint is None else job.checkpoint._asdict()
    jobs.append(values)
  return json.dumps({"asked": status.asked, "time": status.time, "jobs": jobs})


def status_from_json(text: str) -> Status:
  """Returns the status in a text of `status_as_json`.

  Raises ValueError or TypeError for another text, such as a text of another release.
  """
  values = json.loads(text)
  jobs = []
  for job in values["jobs"]:
    for name, kind in _LISTS.items():
      job[name] = [kind(**row) for row in job[name]]
    if job["checkpoint"] is not None:
      job["checkpoint"] = CheckpointStatus(**job["checkpoint"])
    jobs.append(JobStatus(**job))
  return Status(values["asked"], values["time"], jobs)


_LISTS = {"tasks": TaskStatus, "ps": PsStatus, "queues": QueueStatus}
