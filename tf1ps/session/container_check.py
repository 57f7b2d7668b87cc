"""Refuses a task whose container does not fit the containers of the other tasks.

Two jobs in one container overwrite each other's variables. A worker whose container differs from
its chief's container waits in vain. The heartbeats show both faults.
"""

from __future__ import annotations

from typing import Dict

from tf1ps.compat import TIMING, Error
from tf1ps.state import ControlRecord, containers_of, members_of


class ContainerMismatchError(Error, RuntimeError):
  """This task's container belongs to another job, or differs from its chief's."""


def check_chief(records: Dict[str, ControlRecord], chief, container: str) -> None:
  """Raises ContainerMismatchError if another living chief uses this chief's container.

  `records` are the control records of ps 0.
  """
  for member in members_of(records, container):
    if member.role == "chief" and member.name != chief.name and _lives(member):
      raise ContainerMismatchError(
        "%s is in use by the job whose chief is %s (process %d on %s): give this job another "
        "--container, or tf1ps.Server(..., container=)" % (
          _say(container), member.name, member.pid, member.host))


def check_worker(records: Dict[str, ControlRecord], chief, container: str) -> None:
  """Raises ContainerMismatchError if this worker's chief lives only in another container.

  `records` are the control records of ps 0.
  """
  living = {name: member for name, member in containers_of(records, chief).items()
            if member.role == "chief" and _lives(member)}
  if living and container not in living:
    other = min(living, key=lambda name: living[name].age)
    raise ContainerMismatchError(
      "the chief %s keeps the job's state in %s, but this task looks in %s: give all tasks the "
      "same --container and the same --job_workers" % (
        chief.name, _say(other), _say(container)))


def _lives(member) -> bool:
  return member.age < TIMING.alive_within and not member.has_ended


def _say(container):
  return "container %s" % container if container else "the default container"
