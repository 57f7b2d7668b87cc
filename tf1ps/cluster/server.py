"""`tf1ps.Server`: TensorFlow's server, that refuses bad specs and ends with its job.

What it adds to `tf.train.Server`, in this order:

1. The cluster is checked (see spec.py) before anything starts; stock listens on port 99999 modulo
   65536, or waits for ever for an address that nobody has.
2. A port that is taken is an error of its own, `PortTakenError`, since a launcher tries another.
3. What the server was told is remembered under its target, so that a session which is only given
   `master=server.target` knows whom to probe (`record_of`).
4. `join()` hears SIGINT and SIGTERM and returns when the job has ended. Knowing that is a matter of
   rooms above this one: they register how to wait with `register_end_waiter`.
"""

from __future__ import annotations

import signal
import threading
from typing import Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import proxy
from tf1ps.cluster import spec as spec_lib
from tf1ps.compat import Error

_records = {}
_end_waiter = None


class PortTakenError(Error, RuntimeError):
  """The port of this task is in use by another process."""


class JobLostError(Error, RuntimeError):
  """The job of a ps failed, or ended without its release: its workers are lost, or never came."""


class ReleasedError(JobLostError):
  """The chief has released this task, and said that the job has failed."""


class ServerRecord(NamedTuple):
  """What a server was told, for whoever knows only its target."""

  target: str  # of the server
  cluster: spec_lib.Cluster  # the normalised cluster, with this task
  container: Optional[str]  # of the job's state; "": the default one; None: a ps was not told
  config: Optional[tf.ConfigProto]  # the server's
  standing: bool  # whether a ps outlives jobs
  start_timeout: Optional[float]  # seconds that a ps waits for its first worker; None: 600
  lost_after: float  # seconds of silence until a task counts as lost


def record_of(target: str) -> Optional[ServerRecord]:
  """The record of this process's server with that target; None for any other target."""
  return _records.get(target)


def latest_record() -> Optional[ServerRecord]:
  """The record of the server that this process made last; None where it made none."""
  return list(_records.values())[-1] if _records else None


def job_container() -> str:
  """The container of the job that this process's last server belongs to; "" is the default one."""
  record = latest_record()
  return (record.container or "") if record is not None else ""


def register_end_waiter(waiter: Callable[[ServerRecord, threading.Event], str]) -> None:
  """Registers what `join` waits by.

  Args:
    waiter: gets the server's record and an event that is set when the wait shall end early; returns
      a sentence that says how the job ended, or raises `JobLostError`.
  """
  global _end_waiter
  _end_waiter = waiter


def _with_real_port(cluster: spec_lib.Cluster, target: str) -> spec_lib.Cluster:
  """The cluster of a one-task server on port 0, with the port that the system chose."""
  host, port = cluster.task.address.rsplit(":", 1)
  if port != "0":
    return cluster
  address = "%s:%s" % (host, target.rsplit(":", 1)[1])
  return cluster._replace(jobs={cluster.job_name: {cluster.task_index: address}})


class Server(tf.train.Server):
  """A `tf.train.Server` that refuses bad specs, and whose `join` returns.

  Attributes:
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
    standing: bool = False,
    start_timeout: Optional[float] = None,
    lost_after: float = 30.0
  ):
    """Creates the server, like `tf.train.Server`; what follows `start` is ours.

    Args:
      server_or_cluster_def: a ServerDef, ClusterDef, ClusterSpec, or dict of job to addresses.
      job_name: the job of this task; may be absent where the cluster has one task.
      task_index: the index of this task; may be absent where the cluster has one task.
      protocol: "grpc".
      config: a `tf.ConfigProto`.
      start: whether to start it at once.
      container: the container of this job's state, the same in all its tasks; "" is the default.
        None, for a ps: that of the job that comes.
      job_workers: the workers of this job, where several share the servers; None: all.
      standing: whether a ps outlives the jobs that it serves.
      start_timeout: seconds that `join` of a ps waits for the first worker; None: 600.
      lost_after: seconds of silence until a task counts as lost.

    Raises:
      spec.ClusterError: a cluster that cannot work, with the value and what would be right.
      ValueError: a limit that is not positive.
      PortTakenError: another process has this task's port.
    """
    cluster = spec_lib.from_cluster_spec(server_or_cluster_def, job_name, task_index)
    if job_workers is not None:
      cluster = cluster._replace(job_workers=tuple(job_workers))
    spec_lib.check_cluster(cluster)
    for name, value in (("lost_after", lost_after), ("start_timeout", start_timeout)):
      if value is not None and value <= 0:
        raise ValueError("%s must be a positive number of seconds, got %r" % (name, value))
    proxy.bypass_proxy(cluster.tasks())
    try:
      # A dict with its indices as text is a cluster for us, and none for TensorFlow 1.15.
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
    self._record = ServerRecord(
      self.target, _with_real_port(cluster, self.target), container, config, standing,
      start_timeout, lost_after)
    _records[self.target] = self._record

  @staticmethod
  def create_local_server(config=None, start=True):
    """Creates a server of one task in this process, like `tf.train.Server.create_local_server`."""
    return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)

  def join(self):
    """Waits until the job has ended, and returns; a ps lingers for its workers' last calls.

    Ctrl-C and SIGTERM end the wait at once, with exit code 128 + the signal's number (a standing
    ps: 0, since that is how it is told to stop). Where another thread than the main one joins,
    signals are the main thread's affair.

    Raises:
      JobLostError: the job's workers are lost, or none came.
      SystemExit: after a signal.
    """
    if _end_waiter is None:
      # Only the rooms above know when a job has ended, and none of them was imported.
      super().join()
      return
    interrupted = threading.Event()
    seen = []

    def on_signal(signum, unused_frame):
      seen.append(signum)
      interrupted.set()

    in_main = threading.current_thread() is threading.main_thread()
    replaced = {}
    if in_main:
      for signum in (signal.SIGINT, signal.SIGTERM):
        replaced[signum] = signal.signal(signum, on_signal)
    try:
      self.end_reason = _end_waiter(self._record, interrupted)
    finally:
      for signum, handler in replaced.items():
        signal.signal(signum, handler)
    if seen and not self._record.standing:
      raise SystemExit(128 + seen[0])
