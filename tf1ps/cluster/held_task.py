"""One process per task: a second process is refused before it disturbs the first.

On every ps, a session of a second process ends the sessions of the first process. Other tasks reach
a task at its address in the cluster, so the process that answers at that address is the task:

1. `check_not_held` probes the address when a server has started, and in a path check that fails. It
   refuses this process if another server answers.
2. If no server answers, this process may be on the wrong machine, or a service or a forwarded port
   that leads here may not be ready. An address such as localhost leads from every machine to the
   machine itself. In both cases `is_proven` warns, and the process sends no heartbeat before the
   path check shows that the ps reach it.
"""

from __future__ import annotations

import logging
import os
import socket

from tf1ps.cluster.description import Cluster, Task
from tf1ps.cluster.network import is_loopback, is_of_this_machine
from tf1ps.cluster.probe import ANOTHER_TASK, NO_SUCH_HOST, probe_task
from tf1ps.compat import TIMING, Error

_log = logging.getLogger("tf1ps")


class TaskHeldError(Error, RuntimeError):
  """Another process is already the task of this process."""


def this_process() -> str:
  """Returns the id and the machine of this process, for messages."""
  return "process %d on %s" % (os.getpid(), socket.gethostname())


def check_not_held(task: Task, target: str, timeout: float = TIMING.round_trip_limit):
  """Probes the address of this process's task.

  Args:
    task: the `Task` of this process.
    target: the target of its server.
    timeout: seconds for each of two probes.

  Returns:
    (the `ProbeResult` of the address, whether this process answered there).

  Raises:
    TaskHeldError: another server answers at the address.
  """
  there = probe_task(task, timeout)
  if there.state == ANOTHER_TASK:
    raise TaskHeldError(
      "this is %s, but %s. Start %s on the machine of its address, or correct the cluster." % (
        this_process(), there, task.name))
  if not there.is_up:
    return there, False
  at = "localhost:" + target.rsplit(":", 1)[1]  # TensorFlow 2's target has the cluster's host
  here = probe_task(task._replace(address=at), timeout)
  if here.is_up and there.incarnation != here.incarnation:
    raise TaskHeldError(
      "%s at %s is already another process; this is %s. Is --task_index given twice?" % (
        task.name, task.address, this_process()))
  return there, here.is_up


def is_proven(cluster: Cluster, target: str) -> bool:
  """Whether the other tasks surely reach this process at its address; else it warns.

  Args:
    cluster: the cluster, with this process's task.
    target: the target of this process's server.

  Raises:
    TaskHeldError: another server answers at the address.
  """
  task, control_task = cluster.task, cluster.control_task
  there, is_own = check_not_held(task, target)
  if is_own:
    if control_task == task or not is_loopback(task.address) or (
        is_of_this_machine(control_task.address)):
      return True
    _log.warning(
      "%s has the address %s, which means another machine to each host. So %s at %s cannot reach "
      "this process, except through a tunnel. Give %s an address of this machine (%s).",
      task.name, task.address,
      control_task.name, control_task.address, task.name, socket.gethostname())
    return False
  if there.state == NO_SUCH_HOST or is_of_this_machine(task.address):
    return True
  _log.warning(
    "this is %s, and its machine does not have the address %s of %s. The probe of that address "
    "says: %s. Start %s on the machine of that address, unless a service or a forwarded port will "
    "lead to this process.",
    this_process(), task.address, task.name, there.detail, task.name)
  return False
