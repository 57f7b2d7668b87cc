"""Clears containers, task by task, without ending a session.

TensorFlow's `Session.reset` waits for every task of the cluster without a limit, ends all sessions
of the master that it asks, and on 2.21 kills a ps on which an operation is blocked on a queue of
the container. `reset_containers` instead

1. writes a control record that the reset begins, and marks the job's run as not initialised, so
   that its workers wait for their chief. With their next heartbeat the job's sessions see the
   record, stop, and report that they have stopped. The reset waits for these reports, and for the
   end of the cancelled steps on the ps: a step keeps the address of a ref variable, and the ps
   hangs or dies if the step uses this address after the variable is cleared. TensorFlow 1.15 ends a
   cancelled step only after a second.
2. closes the objects that tf1ps created in the container, on each task. A queue must stay between
   the first and the last operation of a step: otherwise another client could create a new queue
   under its name, and the step would wait for the new queue for ever while it holds the lock. So
   the reset marks each object as gone in the container's register while it holds the object's lock.
   Later steps see the mark and touch nothing. The reset's marking step also closes a queue, which
   ends TensorFlow's operations on the queue.
3. clears the container on each task, by a call with a limit that ends no session.
4. writes a control record that the reset is done.

Control records, locks and other containers stay. The register does not list queues of programs
without tf1ps: name such queues in `queues` if a client may be blocked on them.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Dict, List, NamedTuple, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  BoundedSession,
  Cluster,
  LimitExceeded,
  Task,
  bypass_proxy,
  call_within,
  from_cluster_spec,
  make_small_config,
  probe_task,
  record_of,
)
from tf1ps.compat import TIMING, CallError, Error, cleanup_all, error_line, get_status
from tf1ps.state import containers, control, guard, heartbeat, run

DEFAULT = "default"  # what a user may call the default container of each job
_RECORD = "reset:"
_WITH_SESSION = frozenset([heartbeat.MEMBER_STARTING, heartbeat.MEMBER_TRAINING])


class Cleared(NamedTuple):
  """The result of a reset on a task."""

  task: Task
  containers: List[str]  # the containers' names on the task
  queues: List[str]  # the queues that the reset closed first
  error: str  # why the containers were not cleared; "" if they were cleared


class ResetError(Error, RuntimeError):
  """A reset did not reach every task.

  Attributes:
    results: a `Cleared` per task.
  """

  def __init__(self, results: Sequence[Cleared]):
    super().__init__("not cleared: %s; cleared: %s" % (
      "; ".join("%s at %s (%s)" % (r.task.name, r.task.address, r.error)
                for r in results if r.error),
      ", ".join(r.task.name for r in results if not r.error) or "none"))
    self.results = list(results)


def check_names(names) -> List[str]:
  """Returns the container names; raises ValueError for "" and "localhost", which clear nothing."""
  if isinstance(names, str) or not names:
    raise ValueError("names must be a list of container names, got %r. A reset without a name "
                     "would clear the default container of every job." % (names,))
  for name in names:
    if name == "":
      raise ValueError('TensorFlow clears nothing for the container "": the default container of a '
                       'server has the name of its job, such as "ps". Use "default" for that of '
                       'each task.')
    if name == "localhost":
      raise ValueError('TensorFlow clears nothing for the container "localhost": the default '
                       'container of a server has the name of its job. Use "default" for it.')
    if name != DEFAULT:
      containers.check_container_name(name)
  return list(names)


def reset_containers(target: Union[str, Cluster], names: Sequence[str],
                     timeout: float = TIMING.reset_limit,
                     queues: Sequence[str] = ()) -> List[Cleared]:
  """Clears containers on every task of a cluster; returns a `Cleared` per task.

  Args:
    target: the `Cluster`; or the target ("grpc://host:port") of a server of this process or of any
      ps of a tf1ps job, because such a ps keeps its cluster in a control record.
    names: the names of the containers; "default" is the default container of each task.
    timeout: seconds for each task.
    queues: the shared names of queues that programs without tf1ps created in these containers; the
      reset closes these queues, too. On TensorFlow 2.21 a ps dies if a reset clears a queue on
      which a client is blocked.

  Raises:
    ValueError: a name is illegal or has no effect, or the target's cluster is not known.
    ResetError: a task did not answer; all other tasks are cleared.
  """
  names = check_names(names)
  if timeout <= 0:
    raise ValueError("timeout must be a positive number of seconds, got %r" % (timeout,))
  cluster = target if isinstance(target, Cluster) else cluster_at(target, timeout)
  bypass_proxy(cluster.tasks())
  # A user may call the default container by its real name, "ps"; the jobs in it call it "".
  announced = names + [DEFAULT] * any(name in cluster.jobs for name in names)
  token = uuid.uuid4().hex
  _announce(cluster, announced, timeout, token)
  _await_sessions(cluster, announced, min(timeout, TIMING.session_stop_limit), token)
  results = [_clear(task, names, timeout, queues) for task in cluster.tasks()]
  _record(cluster, announced, timeout, token, done=True)
  if any(result.error for result in results):
    raise ResetError(results)
  return results


def cluster_at(target: str, timeout: float = TIMING.reset_limit) -> Cluster:
  """Returns the cluster of a server of this process, or of a ps that keeps it in a control record.

  Raises:
    ValueError: the server's cluster is not known.
  """
  record = record_of(target)
  if record is not None:
    return record.cluster
  task = _task_at(target, timeout)
  bypass_proxy([task])
  table = control.ControlTable(target, task, task, timeout)
  try:
    stored = table.read().get(control.CLUSTER_RECORD)
  except control.ControlError as error:
    raise ValueError("the cluster of the task at %s is not known: %s" % (target, error)) from error
  finally:
    table.close()
  if stored is None:
    raise ValueError("the cluster of %s at %s is not known: it is not a ps that tf1ps started. "
                     "Give the cluster instead of the target." % (task.name, target))
  return from_cluster_spec(stored.value, task.job, task.index)


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
    closed += call_within(timeout, "closing the queues", _close_objects, task, real, queues)
    cleanup_all(task.address, real, timeout)
  except (CallError, LimitExceeded, tf.errors.OpError) as error:
    return Cleared(task, real, closed, error_line(error))
  return Cleared(task, real, closed, "")


def _close_objects(task, names: Sequence[str], others: Sequence[str]) -> List[str]:
  """Marks the objects in containers of a task as gone, and closes the queues.

  `names` are the containers as the server knows them; `others` are shared names of queues that
  tf1ps did not create. Returns "container/queue" of each closed queue.
  """
  graph = tf.Graph()
  with graph.as_default(), tf.device(task.name):
    registers = {name: guard.table(name, guard.REGISTER) for name in names}
    values = {name: tf.raw_ops.LookupTableExportV2(
      table_handle=register, Tkeys=tf.int64, Tvalues=tf.string)[1]
              for name, register in registers.items()}
  config = make_small_config([task.name])
  closed = []
  with BoundedSession("grpc://" + task.address, graph, config, 1.0) as session:
    for name in names:
      objects = guard.descriptions(session.run(values[name]))
      with graph.as_default(), tf.device(task.name):
        steps = [_ClosingStep(task, name, registers[name], each) for each in objects]
        ours = {step.queue for step in steps}
        closes = {other: _close_queue(name, other) for other in others if other not in ours}
      closed += ["%s/%s" % (name, step.queue) for step in _run_all(session, steps) if step.queue]
      closed += ["%s/%s" % (name, other) for other, close in closes.items()
                 if _exists(session.run, close)]
  return closed


def _run_all(session, steps):
  """Runs the steps, in one run if possible; returns the steps whose object existed."""
  try:
    session.run([step.locked for step in steps], options=_lock_limit())
    return steps
  except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
    return [step for step in steps if step.run(session)]


def _lock_limit():
  return tf.RunOptions(timeout_in_ms=int(1000 * TIMING.reset_lock_limit))


class _ClosingStep:
  """The step that marks an object as gone, and closes it if it is a queue.

  Attributes:
    queue: the name of the queue; None if the object is not a queue.
    locked: the operation that runs the step under the object's lock.
  """

  def __init__(self, task, container: str, register, description: Dict[str, Any]):
    """Adds the step to the default graph.

    Args:
      task: the object's task.
      container: its container, as the server knows it.
      register: the container's register.
      description: the object's description in the register.
    """
    kind, name = description["thing"], description["name"]
    self.queue = name if kind == guard.QUEUE_KIND else None
    # Clients of the default container call it "".
    called = ["", container] if container == task.job else [container]
    locks: List[tf.Tensor] = []
    for container_name in called:
      mutex = tf.raw_ops.MutexV2(
        container=containers.CONTROL, shared_name=guard.lock_name(kind, container_name, name))
      with tf.control_dependencies(locks):
        locks.append(tf.raw_ops.MutexLock(mutex=mutex))
    self._unlocked = self._step(register, kind, container, name)
    with tf.control_dependencies(locks):
      closed = self._step(register, kind, container, name)
    with tf.control_dependencies([closed]):
      self.locked = tf.group(*[tf.raw_ops.ConsumeMutexLock(mutex_lock=lock) for lock in locks])

  def run(self, session) -> bool:
    """Runs the step, without the lock after a limit; returns whether the object existed."""
    try:
      return _exists(session.run, self.locked, options=_lock_limit())
    except tf.errors.DeadlineExceededError:
      return _exists(session.run, self._unlocked)

  def _step(self, register, kind, container, name):
    gone = guard.insert(register, tf.constant(guard.register_key(kind, name), tf.int64), guard.GONE)
    if self.queue is None:
      return gone
    with tf.control_dependencies([gone]):
      return _close_queue(container, name)


def _exists(operation, *args, **kwargs) -> bool:
  try:
    operation(*args, **kwargs)
  except tf.errors.NotFoundError:
    return False
  return True


def _close_queue(container, name):
  """Builds an operation that closes any queue; it fails with NotFoundError if there is none.

  The handle of a queue usually comes from the operation that creates the queue, which needs the
  queue's class, types and capacity. TensorFlow's older operations instead take a reference to two
  strings, the container and the name. If a variable held these strings, it would be known on the
  task by its operation's name, and two simultaneous resets would close each other's queues. A
  temporary variable belongs to a single step.
  """
  reference = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.string)
  reference = tf.raw_ops.Assign(ref=reference, value=tf.constant([container, name]))
  return tf.raw_ops.QueueClose(handle=reference, cancel_pending_enqueues=True)


def _job_container(name: str) -> str:
  """The container's name in the job's control records: the default container is ""."""
  return "" if name == DEFAULT else name


def _announce(cluster, names, timeout, token) -> None:
  """Writes that a reset begins, so that sessions that miss their variables know why."""
  for task in cluster.ps or [cluster.chief]:
    _write(task, timeout, lambda records: {
      name: value for container in names
      for name, value in run.uninitialised(records, _job_container(container)).items()})
  _record(cluster, names, timeout, token, done=False)


def _await_sessions(cluster, names, limit, token) -> None:
  """Waits until the live sessions of the jobs in these containers, and their steps, have stopped.

  A session that is being created also ends with its next heartbeat, but does not report it.
  """
  task = cluster.control_task
  table = control.ControlTable("grpc://" + task.address, task, task, limit)
  until = time.monotonic() + limit
  has_sessions = False
  try:
    while True:
      records = table.read()
      states = [member.state for name in names
                for member in heartbeat.members_of(records, _job_container(name))
                if member.age < TIMING.alive_within and member.reset != token]
      has_sessions = has_sessions or bool(_WITH_SESSION.intersection(states))
      if heartbeat.MEMBER_TRAINING not in states or time.monotonic() >= until:
        break
      time.sleep(TIMING.local_poll_interval)
  except control.ControlError:
    pass  # if this fails, no session could read the record either
  finally:
    table.close()
  if has_sessions:
    time.sleep(TIMING.heartbeat_interval + TIMING.cancelled_step_limit)


def _record(cluster, names, timeout, token, done) -> None:
  _write(cluster.control_task, timeout, lambda records: {
    _RECORD + _job_container(name): {"token": token, "done": done} for name in names})


def _write(task, timeout, make) -> None:
  """Writes `make(records)` to a task's control records; the reset's result names a missing task."""
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
  """The last reset of a container."""

  token: str  # a random text; "" if there was no reset
  done: bool  # whether it has reached every task


def reset_notice(records: Dict[str, control.ControlRecord], container: str) -> ResetNotice:
  """Returns the last reset of a job's container from the control records of ps 0."""
  record = records.get(_RECORD + container)
  return ResetNotice("", True) if record is None else ResetNotice(**record.value)
