"""`tf1ps.Server`: a TensorFlow server that refuses bad specs and ends with its job.

It differs from `tf.train.Server` in this order:

1. It checks the cluster (see description.py) before anything starts. Stock listens on port 99999
   modulo 65536, and waits without a limit for a task whose address is wrong.
2. A taken port is an error of its own, `PortTakenError`, because a launcher tries another port.
3. It knows its cluster: `server.cluster`, `server.container`, and `server.record` with the rest. A
   drop-in hands on only `master=server.target`; `record_of` finds the record by that target.
4. `join()` reacts to signals, and ends with the job. As in TensorFlow, what stands behind a ps's
   `join()` does not run: many programs have the workers' code there. Rooms above this one know when
   a job has ended: they register a function with `register_end_waiter`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Cluster, Task
from tf1ps.cluster.holder import is_proven
from tf1ps.cluster.network import bypass_proxy
from tf1ps.cluster.parsing import from_cluster_spec
from tf1ps.cluster.signals import SignalWatch
from tf1ps.compat import GRACE, Error, signal_exit_code

# {target: record} of this process's servers. A process global, because a session or a graph builder
# of a drop-in gets at most the target of its server.
_records: Dict[str, "ServerRecord"] = {}
# The record that a thread has chosen, where one process has the servers of several tasks.
_of_thread = threading.local()
# What `join` waits with. A process global, because only rooms above this one know how a job ends.
_end_waiter = None
# Called with the record of each new server, and of each server whose `join` begins. Process
# globals, because only rooms above know what they are for.
_when_made: List[Callable[["ServerRecord"], None]] = []
_when_joined: List[Callable[["ServerRecord"], None]] = []


_ASKS_FOR_TIME = ([signal.SIGTERM], [signal.SIGHUP])  # one signal, and no second one


class PortTakenError(Error, RuntimeError):
  """The port of this task is in use by another process."""


class JobLostError(Error, RuntimeError):
  """The job of a ps failed or ended without a release: its workers are lost or never came."""


class ReleasedError(JobLostError):
  """The chief has released this task and reported that the job has failed."""


class ServerRecord(NamedTuple):
  """The arguments of a server."""

  target: str  # of the server
  cluster: Cluster  # with this server's task as `cluster.task`
  container: Optional[str]  # of the job's state; "": the default one; None: the ps knows none
  config: Optional[tf.ConfigProto]  # the server's
  persistent: bool  # whether a ps outlives its jobs
  start_timeout: Optional[float]  # seconds that a ps waits for its first worker; None: 600
  heartbeat_timeout: float  # seconds of silence until a task counts as lost
  is_proven: bool = True  # whether the others surely reach this process at the task's address
  grace: float = GRACE  # seconds from SIGTERM to the end of the process
  recovery_timeout: Optional[float] = None  # seconds that a ps may stay away; None: as above


def record_of(target: str) -> Optional[ServerRecord]:
  """Returns the record of this process's server with that target; None for any other target.

  For drop-ins that have nothing but the target; with a `Server` at hand, use `server.record`. A
  program may also have made the target from the address that the cluster gives to its task.
  """
  return _records.get(target) or next(
    (record for record in _records.values()
     if target == "grpc://" + record.cluster.task.address), None)


def record_of_task(task: Task) -> Optional[ServerRecord]:
  """Returns the record of this process's server for a task; None if another process has it."""
  return next((record for record in _records.values() if record.cluster.task == task), None)


@contextlib.contextmanager
def as_task(record: ServerRecord) -> Iterator[None]:
  """Makes this thread the task of a server, where one process has servers of several tasks."""
  before = getattr(_of_thread, "record", None)
  _of_thread.record = record
  try:
    yield
  finally:
    _of_thread.record = before


def latest_record() -> Optional[ServerRecord]:
  """Returns the record of this thread's task, else of this process's last server, else None."""
  chosen = getattr(_of_thread, "record", None)
  if chosen is not None:
    return chosen
  return list(_records.values())[-1] if _records else None


def job_container() -> str:
  """Returns the container of the job of this process's last server; "" is the default one."""
  record = latest_record()
  return (record.container or "") if record is not None else ""


def register_end_waiter(
  waiter: Callable[[ServerRecord, threading.Event, Callable[[], bool]], str]) -> None:
  """Registers the function with which `join` waits.

  It gets the server's record, an event that is set to end the wait early, and a function that
  returns whether the task may still wait after that, for a last checkpoint. It returns a sentence
  that says how the job ended, or raises `JobLostError`.
  """
  global _end_waiter
  _end_waiter = waiter


def on_server(made: Optional[Callable[[ServerRecord], None]] = None,
              joins: Optional[Callable[[ServerRecord], None]] = None) -> None:
  """Has functions called with the records of this process's servers, from now on.

  Args:
    made: called with the record of each new server.
    joins: called when the `join` of a server begins.
  """
  for listeners, listener in ((_when_made, made), (_when_joined, joins)):
    if listener is not None and listener not in listeners:
      listeners.append(listener)


def _with_real_port(cluster: Cluster, target: str) -> Cluster:
  """Returns the cluster with the port that the system chose for a one-task server on port 0."""
  host, port = cluster.task.address.rsplit(":", 1)
  if port != "0":
    return cluster
  address = "%s:%s" % (host, target.rsplit(":", 1)[1])
  return dataclasses.replace(cluster, jobs={cluster.job_name: {cluster.task_index: address}})


class Server(tf.train.Server):
  """A `tf.train.Server` that refuses bad specs, and whose `join` returns.

  Attributes:
    record: the `ServerRecord`, with everything that is known of this server.
    end_reason: a sentence that says why `join` returned; "" before.
  """

  end_reason = ""

  def __init__(
    self,
    server_or_cluster_def,
    job_name=None,
    task_index=None,
    protocol=None,
    config=None,
    start=True,
    *,
    container: Optional[str] = "",
    job_workers=None,
    persistent: bool = False,
    start_timeout: Optional[float] = None,
    heartbeat_timeout: float = 30.0,
    grace: float = GRACE,
    recovery_timeout: Optional[float] = None
  ):
    """Creates the server, like `tf.train.Server`; the arguments after `start` are ours.

    Args:
      server_or_cluster_def: a ServerDef, ClusterDef, ClusterSpec, or dict of job to addresses; or a
        `Cluster`, which names this task and needs neither `job_name` nor `task_index`.
      job_name: the job of this task; may be absent where the cluster has one task.
      task_index: the index of this task; may be absent where the cluster has one task.
      protocol: "grpc".
      config: a `tf.ConfigProto`.
      start: whether to start it at once.
      container: the container of this job's state, the same in all its tasks; "" is the default.
        None, for a ps: the container of the job that uses it.
      job_workers: the indices of this job's workers, where several jobs share servers; None: all.
      persistent: whether a ps outlives the jobs that it serves.
      start_timeout: seconds that `join` of a ps waits for the first worker; None: 600.
      heartbeat_timeout: seconds of silence until a task counts as lost.
      grace: seconds from SIGTERM to the end of this process. The chief saves in them, and a ps
        waits for that.
      recovery_timeout: seconds that a ps may stay away before the job ends; None: the
        heartbeat_timeout.

    Raises:
      ClusterError: a cluster that cannot work; the message names the value and the right form.
      ValueError: a limit that is not positive.
      PortTakenError: another process has this task's port.
      TaskHeldError: another server answers at the address of this task.
    """
    if isinstance(server_or_cluster_def, Cluster):
      cluster = server_or_cluster_def
    else:
      cluster = from_cluster_spec(server_or_cluster_def, job_name, task_index, job_workers)
    for name, value in (("heartbeat_timeout", heartbeat_timeout), ("start_timeout", start_timeout),
                        ("grace", grace), ("recovery_timeout", recovery_timeout)):
      if value is not None and value <= 0:
        raise ValueError("%s must be a positive number of seconds, got %r" % (name, value))
    bypass_proxy(cluster.tasks())
    try:
      # TensorFlow 1.15 takes no dict whose indices are text.
      if not isinstance(server_or_cluster_def, tf.train.ServerDef):
        server_or_cluster_def = cluster.cluster_spec()
      super().__init__(
        server_or_cluster_def, cluster.job_name, cluster.task_index, protocol, config, start)
    except tf.errors.UnknownError as error:
      if "Could not start gRPC server" not in str(error):
        raise
      raise PortTakenError(
        "%s cannot listen at %s: another process has that port" % (
          cluster.task.name, cluster.task.address)) from error
    cluster = _with_real_port(cluster, self.target)
    self.record = ServerRecord(
      self.target, cluster, container, config, persistent, start_timeout, heartbeat_timeout,
      not start or is_proven(cluster, self.target), grace,
      recovery_timeout)
    _records[self.target] = self.record
    for listener in _when_made:
      listener(self.record)

  @property
  def cluster(self) -> Cluster:
    """The cluster, with this server's task."""
    return self.record.cluster

  @property
  def container(self) -> Optional[str]:
    """The container of the job's state; "" is the default one; None: this ps knows none."""
    return self.record.container

  @staticmethod
  def create_local_server(config=None, start=True):
    """Creates a server of one task in this process, like `tf.train.Server.create_local_server`."""
    return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)

  def join(self, *, exit: bool = True):
    """Waits until the job has ended; then a ps lingers for its workers' last calls, and exits.

    A signal ends the wait, with exit code 128 + the signal's number. After SIGTERM and SIGHUP a ps
    asks the chief to save, and waits for that within the grace; Ctrl-C and a second signal end it
    at once. A persistent ps ends with 0, because a signal is its regular end. In a thread other
    than the main one, `join` does not react to signals, and returns.

    Args:
      exit: whether a ps exits with code 0 when its job has ended; False: `join` returns. In other
        tasks than a ps it returns.

    Raises:
      JobLostError: the job's workers are lost, or none came.
      SystemExit: after a signal; in a ps, after the end of the job, too.
    """
    for listener in _when_joined:
      listener(self.record)
    if _end_waiter is None:
      super().join()  # no room that knows when a job has ended was imported
      return
    interrupted = threading.Event()
    with SignalWatch(lambda signum: interrupted.set(), replaces_handlers=True) as watch:
      self.end_reason = _end_waiter(
        self.record, interrupted, lambda: watch.received in _ASKS_FOR_TIME)
    if watch.signum is not None:
      self.end_reason = "ended by signal %d" % watch.signum
    if watch.signum is not None and not self.record.persistent:
      raise SystemExit(signal_exit_code(watch.signum))
    if exit and self.cluster.job_name == "ps" and (
        threading.current_thread() is threading.main_thread()):
      raise SystemExit(0)
