"""Containers: where a job's state lives on a server, and how it is cleared.

A container is a name under which a server keeps variables, queues and tables. A job's state lives
in the job's container. What steers jobs (the run, heartbeats, reports) lives in `CONTROL`, which
nothing here clears.
"""

from __future__ import annotations

import re
from typing import Sequence

from tf1ps.compat import worker_service

CONTROL = "tf1ps.control"
# TensorFlow's rule for the containers of ref variables and queues. Resource variables would accept
# anything, but a job may hold both kinds.
_LEGAL = re.compile(r"[A-Za-z0-9.][A-Za-z0-9.\-/]*")


class ContainerError(RuntimeError):
  """A container that could not be cleared."""


def check_name(name: str) -> str:
  """Checks the name of a job's container.

  Args:
    name: the name; "" is the default container.

  Returns:
    The name.

  Raises:
    ValueError: naming the offending character, and a name that would be legal.
  """
  if name == "":
    return name
  if name == CONTROL:
    raise ValueError("container %r is where the run and the heartbeats live; choose another" % name)
  if _LEGAL.fullmatch(name):
    return name
  legal = _LEGAL.match(name)
  position = legal.end() if legal else 0
  suggestion = re.sub(r"[^A-Za-z0-9.\-/]", "-", name).lstrip("-/") or "job"
  raise ValueError(
    "container %r has %r at position %d: a container begins with a letter, a digit or a dot, and "
    "goes on with these, '-' and '/'; %r would do" % (name, name[position], position, suggestion))


def real_name(name: str, task) -> str:
  """The name that a server knows a container by: its default one bears its job's name."""
  return name or task.job


def clear(name: str, tasks: Sequence, timeout: float = 10.0) -> None:
  """Clears a job's container on tasks, one by one; no session ends by it.

  Args:
    name: the container; "" is the default one.
    tasks: the `spec.Task`s to clear it on.
    timeout: seconds for each task.

  Raises:
    ContainerError: naming the task that did not answer; those before it are cleared.
    ValueError: the control container, or an illegal name.
  """
  check_name(name)
  for task in tasks:
    try:
      worker_service.cleanup_all(task.address, [real_name(name, task)], timeout)
    except worker_service.CallError as error:
      raise ContainerError("container %r of %s at %s was not cleared: %s" % (
        real_name(name, task), task.name, task.address, error)) from error
