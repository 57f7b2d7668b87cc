"""Containers: where a job's state lives on a server, and how it is cleared.

A container is a name under which a server keeps variables, queues and tables. A job's state is in
the job's container. The state that controls jobs (the run, heartbeats, reports, locks) is in the
container `CONTROL`, which nothing here clears.

  container_scope       builds the operations of its scope in a container
  check_container_name  the rule for names
  reset_containers      clears containers of a whole cluster (in reset.py)

If servers cannot be cleared container by container, `tf.variable_scope` can also keep two models on
them apart. The variables then have other names, also in checkpoints, and one reset clears both
models.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import TYPE_CHECKING, Iterator, Optional, Sequence

from tf1ps.compat import Error

if TYPE_CHECKING:  # a command line answers before TensorFlow is there
  import tensorflow.compat.v1 as tf

CONTROL = "tf1ps.control"
_JOB = "job"
_RESERVED = ("default", "localhost")
# TensorFlow's rule for the containers of ref variables and queues. Resource variables would accept
# anything, but a job may hold both kinds.
_LEGAL = re.compile(r"[A-Za-z0-9.][A-Za-z0-9.\-/]*")


class ContainerError(Error, RuntimeError):
  """A container could not be cleared, or nothing was built in a `container_scope`."""


def check_container_name(name: str) -> str:
  """Checks the name of a job's container; returns the name.

  Args:
    name: the name; "" is the default container.

  Raises:
    ValueError: the name is illegal; the error names the offending character, and a legal name.
  """
  if name == "":
    return name
  if name == CONTROL:
    raise ValueError("container %r is where the run and the heartbeats live; choose another name" %
                     name)
  if name in _RESERVED:
    raise ValueError("container %r has the name that resets give to the default container; choose "
                     "another name" % name)
  if _LEGAL.fullmatch(name):
    return name
  legal = _LEGAL.match(name)
  position = legal.end() if legal else 0
  suggestion = re.sub(r"[^A-Za-z0-9.\-/]", "-", name).lstrip("-/") or "job"
  raise ValueError(
    "container %r has %r at position %d: a container begins with a letter, a digit or a dot, and "
    "goes on with these, '-' and '/'; %r would do" % (name, name[position], position, suggestion))


@contextlib.contextmanager
def container_scope(name: str, graph: Optional[tf.Graph] = None) -> Iterator[None]:
  """Makes the operations of this scope in a container, like `tf.container`, and checks its effect.

  The scope has no effect if you enter it before you enter the graph, or around `session.run`: then
  its graph gets no operation. An inner scope replaces an outer scope.

  Args:
    name: the container; "" is the default container.
    graph: the `tf.Graph`; None: the default graph.

  Raises:
    ValueError: an illegal name.
    ContainerError: at the end of a scope in which this graph got no operation.
  """
  import tensorflow.compat.v1 as tf  # late: a command line answers before TensorFlow is there

  check_container_name(name)
  graph = tf.get_default_graph() if graph is None else graph
  before = graph.version
  with graph.container(name):
    yield
  if graph.version == before:
    raise ContainerError(
      "nothing was built in container %r: a container belongs to the default graph of the moment "
      "when it is entered. Enter it inside of `with graph.as_default():`, and where operations are "
      "built: around session.run it does nothing." % name)


def container_of_job(job_workers: Optional[Sequence[int]]) -> str:
  """Returns the container of a job for which the user gave no name.

  It depends only on the indices of the job's workers, which distinguish jobs on one ps: paths of
  directories and programs may differ between hosts. Without indices the name is "job". For the
  workers 2 and 3 it is "job-2-3". For eight or more workers it has the first index, the last index,
  and eight digits of the SHA-256 of all indices.
  """
  if job_workers is None:
    return _JOB
  indices = [str(index) for index in sorted(job_workers)]
  if len(indices) >= 8:
    digest = hashlib.sha256("-".join(indices).encode("utf-8")).hexdigest()[:8]
    indices = [indices[0], indices[-1], digest]
  return "-".join([_JOB] + indices)


def real_name(name: str, task) -> str:
  """Returns a container's name on a server; the default container has the name of the job."""
  return name or task.job


def clear_container(name: str, tasks: Sequence, timeout: float = 10.0) -> None:
  """Clears a job's container, task by task, without ending a session.

  Args:
    name: the container; "" is the default container.
    tasks: the `spec.Task`s to clear it on.
    timeout: seconds for each task.

  Raises:
    ContainerError: a task did not answer; the error names it, and the tasks before it are cleared.
    ValueError: the name is illegal, or is the name of the control container.
  """
  # Late: gRPC reads its variables when it is imported, and links set them first (links.enter).
  from tf1ps.compat import CallError, cleanup_all

  check_container_name(name)
  for task in tasks:
    try:
      cleanup_all(task.address, [real_name(name, task)], timeout)
    except CallError as error:
      raise ContainerError("container %r of %s at %s was not cleared: %s" % (
        real_name(name, task), task.name, task.address, error)) from error
