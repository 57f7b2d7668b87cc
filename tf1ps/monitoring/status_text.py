"""The status of a job as text."""

from __future__ import annotations

import time
from typing import List, NamedTuple, Optional, Sequence

from tf1ps.monitoring.job_status import JobStatus, Status, TaskStatus
from tf1ps.transfer import format_bytes

TASK_COLUMNS = ("TASK", "HOST", "STATE", "STEP", "LOSS", "STEPS/S", "EXAMPLES/S",
                "AGE OF GRADIENTS", "LAST SEEN")
PS_COLUMNS = ("PS", "SENT/S", "RECEIVED/S", "MESSAGES/S")
QUEUE_COLUMNS = ("QUEUE", "PS", "SIZE", "CAPACITY", "WAITING")
TEXT_COLUMNS = ("TASK", "HOST", "STATE", "PS", "QUEUE", "WAITING")  # the others have numbers
_UNKNOWN = "-"


class Section(NamedTuple):
  """A table, or lines, of the status of a job."""

  columns: Sequence[str]  # () for lines
  rows: List[tuple]  # tuples of texts; a line is a row with a single text
  states: Sequence[str] = ()  # the state of each row's task


def sections(job: JobStatus) -> List[Section]:
  """Returns the tables and lines below the head of a job."""
  parts = [
    Section(TASK_COLUMNS, task_rows(job), [task.state for task in job.tasks]),
    # How long a task has been lost or waits, why, and what to do.
    _lines("%s %s" % (task.task, task.reason) for task in job.tasks if task.reason),
    Section(PS_COLUMNS, ps_rows(job)), _lines(_load_notes(job)),
    Section(QUEUE_COLUMNS, queue_rows(job)), _lines(_tail_of(job))]
  return [section for section in parts if section.rows]


def _lines(texts) -> Section:
  return Section((), [(text,) for text in texts])


def format_status(status: Status) -> str:
  """Returns the status as the lines of its tables."""
  return "\n\n".join([asked_at(status), *("\n".join(_job_lines(job)) for job in status.jobs)])


def asked_at(status: Status) -> str:
  """Returns the line above all jobs: the ps that was asked, and when."""
  return "asked %s at %s" % (status.asked, time.strftime("%H:%M:%S", time.localtime(status.time)))


def head_of(job: JobStatus) -> str:
  """Returns the line above the tables of a job."""
  parts = ["the job %s" % {"ended": "has ended", "failed": "has failed"}.get(
    job.state, "is " + job.state)]
  if job.global_step is not None:
    parts.append("global step %d" % job.global_step)
  parts.append("%.1f steps/s and %.0f examples/s of all workers" % (
    job.steps_per_second, job.examples_per_second))
  where = "in container %s" % job.container if job.container else "in the default container"
  return "%s (%s%s)" % (", ".join(parts), job.run and "run %s " % job.run, where)


def _job_lines(job) -> List[str]:
  lines = [head_of(job)]
  for columns, rows, _ in sections(job):
    lines += ["", *(_table(columns, rows) if columns else (row[0] for row in rows))]
  return lines


def task_rows(job: JobStatus) -> List[tuple]:
  """Returns the rows of the tasks, as texts."""
  return [(task.task + " (chief)" * (task.role == "chief"), task.host or _UNKNOWN, task.state,
           _count(task.global_step), _rate(task.loss, 4), _rate(task.steps_per_second),
           _rate(task.examples_per_second, 0), _age(task), _seconds(task.last_seen))
          for task in job.tasks]


def ps_rows(job: JobStatus) -> List[tuple]:
  """Returns the rows of the load of each ps, as texts."""
  return [(ps.task, _bytes(ps.bytes_sent_per_second), _bytes(ps.bytes_received_per_second),
           _rate(ps.messages_per_second, 0)) for ps in job.ps]


def _load_notes(job: JobStatus) -> List[str]:
  """Returns lines about ps that do not answer, and about a load that is not known."""
  lines = ["%s at %s does not answer: %s" % (ps.task, ps.address, ps.problem)
           for ps in job.ps if ps.problem]
  if not job.ps:
    return [*lines, "load: the job has no ps"]
  if all(ps.messages_per_second is None for ps in job.ps):
    return [*lines, "load: not known, because the chief has not measured its step"]
  return lines


def queue_rows(job: JobStatus) -> List[tuple]:
  """Returns the rows of the queues, as texts."""
  return [(queue.name, queue.task, str(queue.size),
           "no limit" if queue.capacity is None else str(queue.capacity),
           "; ".join(queue.waiting) or "nobody") for queue in job.queues]


def _tail_of(job: JobStatus) -> List[str]:
  """Returns the lines below the tables of a job."""
  lines = [] if job.queues else ["queues: none of tf1ps on the ps"]
  if job.checkpoint is None:
    return [*lines, "checkpoints: " + job.checkpoint_note]
  return [*lines, "checkpoints: the last at step %d, %s ago, in %s" % (
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
