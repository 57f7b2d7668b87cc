"""The status of a job as text and as JSON."""

from __future__ import annotations

import json
import time
from typing import List, Optional

from tf1ps.monitoring.status import JobStatus, Status, TaskStatus
from tf1ps.transfer import format_bytes

TASK_COLUMNS = ("TASK", "HOST", "STATE", "STEP", "LOSS", "STEPS/S", "EXAMPLES/S",
                "AGE OF GRADIENTS", "LAST SEEN")
PS_COLUMNS = ("PS", "SENT/S", "RECEIVED/S", "MESSAGES/S")
QUEUE_COLUMNS = ("QUEUE", "PS", "SIZE", "CAPACITY", "WAITING")
_UNKNOWN = "-"


def status_as_json(status: Status) -> str:
  """Returns the status as one line of JSON; what is not known is null."""
  jobs = []
  for job in status.jobs:
    found = job._asdict()
    for name in ("tasks", "ps", "queues"):
      found[name] = [one._asdict() for one in found[name]]
    found["checkpoint"] = None if job.checkpoint is None else job.checkpoint._asdict()
    jobs.append(found)
  return json.dumps({"asked": status.asked, "time": status.time, "jobs": jobs})


def format_status(status: Status) -> str:
  """Returns the status as the lines of its tables."""
  return "\n\n".join([asked_at(status), *("\n".join(_job_lines(job)) for job in status.jobs)])


def asked_at(status: Status) -> str:
  """Returns the line above all jobs: the ps that was asked, and when."""
  return "asked %s at %s" % (
    status.asked, time.strftime("%H:%M:%S", time.localtime(status.time)))


def head_of(job: JobStatus) -> str:
  """Returns the line above the tables of a job."""
  where = "container %s" % job.container if job.container else "the default container"
  run = ", run %s" % job.run if job.run else ""
  parts = ["job in %s%s: %s" % (where, run, job.state)]
  if job.global_step is not None:
    parts.append("global step %d" % job.global_step)
  parts.append("%.1f steps/s and %.0f examples/s of all workers" % (
    job.steps_per_second, job.examples_per_second))
  return ", ".join(parts)


def _job_lines(job) -> List[str]:
  lines = [head_of(job), ""]
  lines += _table(TASK_COLUMNS, task_rows(job))
  notes = notes_of(job)
  if notes:
    lines += ["", *notes]
  lines += ["", *_table(PS_COLUMNS, ps_rows(job))] if job.ps else []
  if load_notes(job):
    lines += ["", *load_notes(job)]
  if job.queues:
    lines += ["", *_table(QUEUE_COLUMNS, queue_rows(job))]
  return [*lines, "", *tail_of(job)]


def task_rows(job: JobStatus) -> List[tuple]:
  """Returns the rows of the tasks, as texts."""
  return [(one.task + (" (chief)" if one.role == "chief" else ""), one.host or _UNKNOWN, one.state,
           _count(one.global_step), _rate(one.loss, 4), _rate(one.steps_per_second),
           _rate(one.examples_per_second, 0), _age(one), _seconds(one.last_seen))
          for one in job.tasks]


def notes_of(job: JobStatus) -> List[str]:
  """Returns a line for each task that is lost, waits or has ended: since when, why, what to do."""
  return ["%s %s" % (one.task, one.reason) for one in job.tasks if one.reason]


def ps_rows(job: JobStatus) -> List[tuple]:
  """Returns the rows of the load of each ps, as texts."""
  return [(one.task, _bytes(one.bytes_sent_per_second), _bytes(one.bytes_received_per_second),
           _rate(one.messages_per_second, 0)) for one in job.ps]


def load_notes(job: JobStatus) -> List[str]:
  """Returns lines about the load of the ps: its source, and those that do not answer."""
  lines = ["%s at %s does not answer: %s" % (one.task, one.address, one.problem)
           for one in job.ps if one.problem]
  if not job.ps:
    return [*lines, "load: the job has no ps"]
  if all(one.messages_per_second is None for one in job.ps):
    return [*lines, "load: not known, because the chief has not measured its step"]
  return lines


def queue_rows(job: JobStatus) -> List[tuple]:
  """Returns the rows of the queues, as texts."""
  return [(one.name, one.task, str(one.size),
           "no limit" if one.capacity is None else str(one.capacity),
           "; ".join(one.waiting) or "nobody") for one in job.queues]


def tail_of(job: JobStatus) -> List[str]:
  """Returns the lines below the tables of a job."""
  lines = [] if job.queues else ["queues: none of tf1ps on the ps"]
  if job.checkpoint is None:
    return [*lines, "checkpoints: " + job.checkpoint_note]
  return [*lines, "checkpoints: the last one at step %d, %s ago, in %s" % (
    job.checkpoint.global_step, _seconds(job.checkpoint.age), job.checkpoint.directory)]


def _table(columns, rows) -> List[str]:
  widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
  return ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
          for row in [columns, *rows]]


def _count(value: Optional[int]) -> str:
  return _UNKNOWN if value is None else str(value)


def _rate(value: Optional[float], digits: int = 1) -> str:
  return _UNKNOWN if value is None else "%.*f" % (digits, value)


def _bytes(value: Optional[float]) -> str:
  return _UNKNOWN if value is None else format_bytes(value)


def _age(task: TaskStatus) -> str:
  if task.gradient_age_mean is None:
    return _UNKNOWN
  return "%.1f (%d at most)" % (task.gradient_age_mean, task.gradient_age_highest)


def _seconds(value: Optional[float]) -> str:
  return "never" if value is None else "%.1f s" % value
