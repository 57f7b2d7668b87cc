"""Clearing a container, task by task, without ending a session.

TensorFlow's `Session.reset` waits for every task of the cluster without a limit, ends all sessions
of the master that it asks, and on 2.21 kills a ps on which an operation is blocked on one of the
container's queues. `reset` goes to each task by itself:

1. It writes down that it begins, and marks the job's run as not initialised, so that its workers
   wait for their chief. The job's sessions see that with their next heartbeat, stop, and say so:
   it is waited for that, as clearing a ref variable under a running step can kill its ps.
2. It takes what tf1ps made in the container out of use (retiring.py): steps in progress end first,
   what is blocked on queues ends, and nothing that comes later blocks.
3. It clears the container, by a call with a limit of its own that ends no session.
4. When it has been to every task, it writes down that it is done.

Control records, locks and other containers stay. Queues of programs without tf1ps are in no list:
name those on which somebody may be blocked.
"""

from __future__ import annotations

import time
import uuid
from typing import Dict, List, NamedTuple, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  Cluster,
  LimitExceeded,
  Task,
  bypass_proxy,
  call_within,
  from_cluster_spec,
  probe_task,
  record_of,
)
from tf1ps.compat import TIMING, CallError, Error, cleanup_all, error_line, get_status
from tf1ps.state import containers, control, heartbeat, retiring, run

DEFAULT = "default"  # what a user may call the default container of each job
_RECORD = "reset:"


class Cleared(NamedTuple):
  """What a reset did on one task."""

  task: object  # the `spec.Task`
  containers: List[str]  # their names there
  queues: List[str]  # the queues that it closed first
  error: str  # why it was not cleared; "" where it was


class ResetError(Error, RuntimeError):
  """A reset that did not reach every task.

  Attributes:
    results: a `Cleared` for each task.
  """

  def __init__(self, results: Sequence[Cleared]):
    super().__init__("not cleared: %s; cleared: %s" % (
      "; ".join("%s at %s (%s)" % (r.task.name, r.task.address, r.error)
                for r in results if r.error),
      ", ".join(r.task.name for r in results if not r.error) or "none"))
    self.results = list(results)


def check_names(names) -> List[str]:
  """Checks the names of containers to reset; returns them.

  Raises:
    ValueError: "" and "localhost", which TensorFlow accepts and clears nothing for; the control
      container; an illegal name.
  """
  if isinstance(names, str) or not names:
    raise ValueError("names must be a list with the names of containers, got %r: a reset without "
                     "a name would clear the default container of every job" % (names,))
  for name in names:
    if name == "":
      raise ValueError('TensorFlow clears nothing for the container "": the default container of a '
                       'server bears the name of its job, such as "ps"; say "default" for that of '
                       'each task')
    if name == "localhost":
      raise ValueError('TensorFlow clears nothing for the container "localhost": the default '
                       'container of a server bears the name of its job; say "default" for that')
    if name != DEFAULT:
      containers.check_container_name(name)
  return list(names)


def reset_containers(target, names: Sequence[str], timeout: float = 10.0,
          queues: Sequence[str] = ()) -> List[Cleared]:
  """Clears containers on every task of a cluster.

  Args:
    target: the `spec.Cluster`; or the target of a server of this process ("grpc://host:port"), or
      of any ps of a tf1ps job, which tells its cluster.
    names: of the containers; "default" is the default container of each task.
    timeout: seconds for each task.
    queues: the shared names of queues in these containers that programs without tf1ps made; they
      are closed as well. On TensorFlow 2.21 a ps dies when one on which somebody is blocked is
      cleared away.

  Returns:
    A `Cleared` for each task.

  Raises:
    ValueError: a name that cannot be meant, see `check_names`, or a target that tells no cluster.
    ResetError: a task did not answer; all others are cleared.
  """
  names = check_names(names)
  if timeout <= 0:
    raise ValueError("timeout must be a positive number of seconds, got %r" % (timeout,))
  cluster = target if hasattr(target, "tasks") else cluster_at(target, timeout)
  bypass_proxy(cluster.tasks())
  # Whoever knows that the default container is called "ps" means the jobs that live there.
  told = names + [DEFAULT] * any(name in cluster.jobs for name in names)
  token = uuid.uuid4().hex
  _announce(cluster, told, timeout, token)
  _await_sessions(cluster, told, min(timeout, TIMING.session_stop_limit), token)
  results = [_clear(task, names, timeout, queues) for task in cluster.tasks()]
  _record(cluster, told, timeout, token, done=True)
  if any(result.error for result in results):
    raise ResetError(results)
  return results


def cluster_at(target: str, timeout: float = 10.0) -> Cluster:
  """The cluster of a server, from what this process knows or what the server keeps.

  Raises:
    ValueError: nothing is known there.
  """
  record = record_of(target)
  if record is not None:
    return record.cluster
  task = _task_at(target, timeout)
  bypass_proxy([task])
  table = control.ControlTable(target, task, task, timeout)
  try:
    found = table.read().get(control.CLUSTER_RECORD)
  except control.ControlError as error:
    raise ValueError("the server at %s does not tell its cluster: %s" % (target, error)) from error
  finally:
    table.close()
  if found is None:
    raise ValueError("%s at %s does not tell its cluster, since it is no ps that was started by "
                     "tf1ps: give the cluster instead of the target" % (task.name, target))
  return from_cluster_spec(found.value, task.job, task.index)


def _task_at(target, timeout):
  if not str(target).startswith("grpc://"):
    raise ValueError("target must be a cluster or begin with grpc://, got %r" % (target,))
  address = target[len("grpc://"):]
  try:
    name = get_status(address, timeout)[0].name
  except (CallError, IndexError) as error:
    raise ValueError("no TensorFlow server answers at %s: %s" % (address, error)) from error
  spec = tf.DeviceSpec.from_string(name)
  return Task(spec.job, spec.task, address)


def _clear(task, names, timeout, queues) -> Cleared:
  real = [containers.real_name(_job_container(name), task) for name in names]
  closed: List[str] = []
  seen = probe_task(task, timeout)
  if not seen.is_up:
    return Cleared(task, real, closed, seen.detail)
  try:
    closed += call_within(
      timeout, "closing the queues", retiring.retire, task, real, queues)
    cleanup_all(task.address, real, timeout)
  except (CallError, LimitExceeded, tf.errors.OpError) as error:
    return Cleared(task, real, closed, error_line(error))
  return Cleared(task, real, closed, "")


def _job_container(name: str) -> str:
  """The container as jobs know it: their default one is ""."""
  return "" if name == DEFAULT else name


def _announce(cluster, names, timeout, token) -> None:
  """Writes that a reset begins, so that who finds its variables gone knows why."""
  for task in cluster.ps or [cluster.chief]:
    _write(task, timeout, lambda records: {
      name: value for container in names
      for name, value in run.uninitialised(records, _job_container(container)).items()})
  _record(cluster, names, timeout, token, done=False)


def _await_sessions(cluster, names, limit, token) -> None:
  """Waits until the living sessions of the jobs in these containers have stopped."""
  task = cluster.control_task
  table = control.ControlTable("grpc://" + task.address, task, task, limit)
  until = time.monotonic() + limit
  try:
    while time.monotonic() < until:
      records = table.read()
      members = [member for name in names
                 for member in heartbeat.members_of(records, _job_container(name))]
      if not any(member.state == heartbeat.MEMBER_TRAINING and member.age < TIMING.alive_within
                 and member.reset != token for member in members):
        return
      time.sleep(TIMING.local_poll_interval)
  except control.ControlError:
    pass  # nobody is told anything there
  finally:
    table.close()


def _record(cluster, names, timeout, token, done) -> None:
  _write(cluster.control_task, timeout, lambda records: {
    _RECORD + _job_container(name): {"token": token, "done": done} for name in names})


def _write(task, timeout, make) -> None:
  """Writes what `make` makes of a task's control records; a task that is away is named later."""
  table = control.ControlTable("grpc://" + task.address, task, task, min(timeout, 5.0))
  try:
    records = make(table.read())
    if records:
      table.put(records)
  except control.ControlError:
    pass
  finally:
    table.close()


class ResetNotice(NamedTuple):
  """The last reset of a container, as the control records tell of it."""

  token: str  # random; "" where there was none
  done: bool  # whether it had been to every task


def reset_notice(records: Dict[str, control.ControlRecord], container: str) -> ResetNotice:
  """What the control records of ps 0 tell of a job's container."""
  record = records.get(_RECORD + container)
  return ResetNotice("", True) if record is None else ResetNotice(**record.value)
