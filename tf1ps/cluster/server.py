"""`tf1ps.Server`: a TensorFlow server that refuses bad specs and ends with its job.

It differs from `tf.train.Server` as follows:

1. It checks the cluster (see description.py) before anything starts. TensorFlow's server listens on
   port 99999 modulo 65536, and waits without a limit for a task whose address is wrong.
2. A taken port has its own error, `PortTakenError`, because a launcher then tries another port.
3. It knows its cluster: `server.cluster`, `server.container`, and `server.record` with the rest. A
   drop-in passes on only `master=server.target`; `record_of` finds the record by that target.
4. `join()` reacts to signals, and ends with the job. As in TensorFlow, the code after a ps's
   `join()` does not run, because many programs have the workers' code there. Rooms above know when
   a job has ended: they register a function with `register_end_waiter`.
5. Its errors do not repeat the process's last warnings, as the errors of TensorFlow 2 do. A warning
   about an input record contains the record's bytes. Such bytes would turn each later error of a
   session run, including the end of the data, into a UnicodeDecodeError.
6. Its process may open more files than the usual 1,024. Each connection is a file: if strangers
   held all of them, no task could connect, and no checkpoint could be opened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import signal
import threading
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Cluster, ClusterError, Task
from tf1ps.cluster.gpus import warn_of_unseen_gpus, with_gpus
from tf1ps.cluster.held_task import is_proven
from tf1ps.cluster.network import bypass_proxy
from tf1ps.cluster.parsing import from_cluster_spec
from tf1ps.cluster.session_config import without_placement_log
from tf1ps.cluster.signals import SignalWatch
from tf1ps.cluster.threads import with_threads
from tf1ps.compat import (
  ENDED_BY_SIGNAL,
  GRACE,
  DropIn,
  Error,
  keep_freed_memory,
  signal_exit_code,
)

# {target: record} of this process's servers. A process global, because a session or a graph builder
# of a drop-in gets at most the target of its server.
_records: Dict[str, "ServerRecord"] = {}
_FILES = 1 << 16  # the number of files that a process may open, if the system permits it
# TensorFlow reads this variable once, at the process's first server.
_REPEATED_WARNINGS = "TF_WORKER_NUM_FORWARDED_LOG_MESSAGES"
# The record that a thread has chosen, if a process has the servers of several tasks.
_of_thread = threading.local()
# The wait of `join`. A process global, because only rooms above this room know how a job ends.
_end_waiter = None
# Called with the record of each new server, and of each server whose `join` begins. Process
# globals, because only rooms above know the purpose of these functions.
_when_made: List[Callable[["ServerRecord"], None]] = []
_when_joined: List[Callable[["ServerRecord"], None]] = []


_ASKS_FOR_TIME = ([signal.SIGTERM], [signal.SIGHUP])  # a single signal


class PortTakenError(Error, RuntimeError, tf.errors.UnknownError):
  """The port of this task is in use by another process."""

  def __init__(self, message: str):
    tf.errors.UnknownError.__init__(self, None, None, message)


class ServerClusterError(ClusterError, tf.errors.InvalidArgumentError):
  """The cluster of a server is wrong, such as an address or a port."""

  def __init__(self, message: str):
    tf.errors.InvalidArgumentError.__init__(self, None, None, message)


class JobLostError(Error, RuntimeError):
  """The job of a ps failed or ended without a release: its workers are lost or never came."""


class ReleasedError(JobLostError):
  """The chief has released this task and reported that the job has failed."""


class ServerRecord(NamedTuple):
  """The arguments of a server."""

  target: str  # the target of the server
  cluster: Cluster  # with this server's task as `cluster.task`
  container: Optional[str]  # of the job's state; "": the default container; None: a ps without one
  config: Optional[tf.ConfigProto]  # the server's config
  persistent: bool  # whether a ps outlives its jobs
  start_timeout: Optional[float]  # seconds that a ps waits for its first worker; None: 600
  heartbeat_timeout: float  # seconds of silence until a task counts as lost
  is_proven: bool = True  # whether the others surely reach this process at the task's address
  grace: float = GRACE  # seconds from SIGTERM to the end of the process
  # Seconds that a ps may stay away; None: the heartbeat_timeout.
  recovery_timeout: Optional[float] = None

  @property
  def logs_placement(self) -> bool:
    """Whether the program's sessions log each operation's device, because the server should."""
    return self.config is not None and self.config.log_device_placement


def record_of(target: str) -> Optional[ServerRecord]:
  """Returns the record of this process's server with that target; None for any other target.

  This is for drop-ins that have only the target. If you have the `Server`, use `server.record`. The
  target may also be "grpc://" with the address that the cluster gives to the server's task.
  """
  return _records.get(target) or next(
    (record for record in _records.values()
     if target == "grpc://" + record.cluster.task.address), None)


def record_of_task(task: Task) -> Optional[ServerRecord]:
  """Returns the record of this process's server for a task; None if another process has it."""
  return next((record for record in _records.values() if record.cluster.task == task), None)


@contextlib.contextmanager
def as_task(record: ServerRecord) -> Iterator[None]:
  """Makes this thread the task of a server, in a process that has servers of several tasks."""
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
  """Returns the container of the job of this process's last server; "" is the default container."""
  record = latest_record()
  return (record.container or "") if record is not None else ""


def register_end_waiter(
  waiter: Callable[[ServerRecord, threading.Event, Callable[[], bool]], str]) -> None:
  """Registers the function with which `join` waits.

  The function gets the server's record, an event that is set to end the wait early, and a function
  that returns whether the task may still wait after that event, for a last checkpoint. It returns a
  sentence that says how the job ended, or raises `JobLostError`.
  """
  global _end_waiter
  _end_waiter = waiter


def on_server(made: Optional[Callable[[ServerRecord], None]] = None,
              joins: Optional[Callable[[ServerRecord], None]] = None) -> None:
  """Registers functions to call with the records of this process's servers, from now on.

  Args:
    made: called with the record of each new server.
    joins: called when the `join` of a server begins.
  """
  for listeners, listener in ((_when_made, made), (_when_joined, joins)):
    if listener is not None and listener not in listeners:
      listeners.append(listener)


def _with_real_port(cluster: Cluster, target: str) -> Cluster:
  """Returns the cluster with the port that the system chose for a single task on port 0."""
  host, port = cluster.task.address.rsplit(":", 1)
  if port != "0":
    return cluster
  address = "%s:%s" % (host, target.rsplit(":", 1)[1])
  return dataclasses.replace(cluster, jobs={cluster.job_name: {cluster.task_index: address}})


def _permit_files():
  """Raises the limit of open files, as far as the system lets a user."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
  if soft != resource.RLIM_INFINITY and soft < wanted:
    with contextlib.suppress(OSError, ValueError):
      resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Server(tf.train.Server, metaclass=DropIn):
  """A `tf.train.Server` that refuses bad specs, and whose `join` returns.

  Attributes:
    record: the `ServerRecord`, with everything that is known of this server.
    end_reason: a sentence that says why `join` returned; "" before.
  """

  _replaces = tf.train.Server
  end_reason = ""

  def __init__(
    self,
    server_or_cluster_def: Union[
      Cluster, tf.train.ServerDef, tf.train.ClusterDef, tf.train.ClusterSpec, dict],
    job_name: Optional[str] = None,
    task_index: Optional[int] = None,
    protocol: Optional[str] = None,
    config: Optional[tf.ConfigProto] = None,
    start: bool = True,
    *,
    container: Optional[str] = "",
    job_workers: Optional[Sequence[int]] = None,
    persistent: bool = False,
    start_timeout: Optional[float] = None,
    heartbeat_timeout: float = 30.0,
    grace: float = GRACE,
    recovery_timeout: Optional[float] = None
  ):
    """Creates the server, like `tf.train.Server`; the arguments after `start` are tf1ps's own.

    Args:
      server_or_cluster_def: a ServerDef, ClusterDef, ClusterSpec, or dict of job to addresses; or a
        `Cluster`, which names this task and needs neither `job_name` nor `task_index`.
      job_name: the job of this task; may be absent if the cluster has one task.
      task_index: the index of this task; may be absent if the cluster has one task.
      protocol: "grpc".
      config: a `tf.ConfigProto`. If another task of the cluster has the same host, the idle threads
        of the server do not spin. Under a CPU quota the server has threads for the granted cores
        (threads.py). If the config has no GPU options, a ps sees no GPU, and workers on one host
        take GPU memory as they need it (gpus.py).
      start: whether to start the server immediately.
      container: the container of this job's state, the same in all its tasks; "" is the default
        container. None, for a ps: the container of the job that uses the ps.
      job_workers: the indices of this job's workers, if several jobs share servers; None: all
        workers.
      persistent: whether a ps outlives the jobs that it serves.
      start_timeout: seconds that `join` of a ps waits for the first worker; None: 600.
      heartbeat_timeout: seconds of silence until a task counts as lost.
      grace: seconds from SIGTERM to the end of this process. In this time the chief saves, and a ps
        waits for the save.
      recovery_timeout: seconds that a ps may stay away before the job ends; None: the
        heartbeat_timeout.

    Raises:
      ServerClusterError: the cluster cannot work; the message names the value and the right form.
        It is a ClusterError.
      ValueError: a limit is not positive.
      PortTakenError: another process has this task's port.
      TaskHeldError: another server answers at the address of this task.
    """
    if isinstance(server_or_cluster_def, Cluster):
      cluster = server_or_cluster_def
    else:
      try:
        cluster = from_cluster_spec(server_or_cluster_def, job_name, task_index, job_workers)
      except ClusterError as error:
        raise ServerClusterError(str(error)) from None
    for name, value in (("heartbeat_timeout", heartbeat_timeout), ("start_timeout", start_timeout),
                        ("grace", grace), ("recovery_timeout", recovery_timeout)):
      if value is not None and value <= 0:
        raise ValueError("%s must be a positive number of seconds, got %r" % (name, value))
    bypass_proxy(cluster.tasks())
    _permit_files()
    keep_freed_memory()
    is_default = _REPEATED_WARNINGS not in os.environ
    os.environ.setdefault(_REPEATED_WARNINGS, "0")
    try:
      # TensorFlow 1.15 does not accept a dict whose indices are text.
      if not isinstance(server_or_cluster_def, tf.train.ServerDef):
        server_or_cluster_def = cluster.cluster_spec()
      super().__init__(
        server_or_cluster_def, cluster.job_name, cluster.task_index, protocol,
        with_gpus(with_threads(without_placement_log(config), cluster), cluster), start)
    except tf.errors.UnknownError as error:  # a server raises this error only for a taken port
      raise PortTakenError(
        "Could not start gRPC server: %s cannot listen at %s: another process has that port" % (
          cluster.task.name, cluster.task.address)) from error
    finally:
      if is_default:
        os.environ.pop(_REPEATED_WARNINGS, None)
    if cluster.job_name != "ps":
      warn_of_unseen_gpus()
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
    """The container of the job's state; "" is the default container; None: a ps without one."""
    return self.record.container

  @staticmethod
  def create_local_server(config: Optional[tf.ConfigProto] = None, start: bool = True) -> Server:
    """Creates a server of a single local task, like `tf.train.Server.create_local_server`."""
    return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)

  def join(self, *, exit: bool = True) -> None:
    """Waits until the job has ended; then a ps lingers for its workers' last calls, and exits.

    A signal ends the wait, with exit code 128 + the signal's number. After SIGTERM and SIGHUP a ps
    asks the chief to save, and waits for the save within the grace; Ctrl-C or a second signal ends
    the ps immediately. A persistent ps ends with code 0, because a signal is its regular end. In a
    thread other than the main thread, `join` does not react to signals, and returns.

    Args:
      exit: whether a ps exits with code 0 when its job has ended; False: `join` returns. In a task
        that is not a ps, `join` always returns.

    Raises:
      JobLostError: the job's workers are lost, or no worker came.
      SystemExit: a signal ended the wait; or, in a ps, the job has ended.
    """
    for listener in _when_joined:
      listener(self.record)
    if _end_waiter is None:
      super().join()  # the process has not imported a room that knows when a job has ended
      return
    interrupted = threading.Event()
    with SignalWatch(lambda signum: interrupted.set(), replaces_handlers=True) as watch:
      self.end_reason = _end_waiter(
        self.record, interrupted, lambda: watch.received in _ASKS_FOR_TIME)
    if watch.signum is not None:
      self.end_reason = ENDED_BY_SIGNAL + str(watch.signum)
    if watch.signum is not None and not self.record.persistent:
      raise SystemExit(signal_exit_code(watch.signum))
    if exit and self.cluster.job_name == "ps" and (
        threading.current_thread() is threading.main_thread()):
      raise SystemExit(0)
