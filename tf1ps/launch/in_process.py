"""A cluster in this process, for notebooks and tests: real servers, and a thread for each worker.

1. All servers are in this process. TensorFlow cannot stop a server, so the next cluster of the same
   shape reuses the servers of a cluster that has ended. A notebook cell that runs again adds no
   servers.
2. `LocalCluster.train` trains a program as tf1ps-worker does, with a thread, a graph and a session
   for each worker.
3. Each worker has a hook of tf1ps. It stops the worker after another worker has failed, and after
   an exception of the caller such as KeyboardInterrupt.

The servers share a thread pool, which the first server of the process creates. A worker may wait
in this pool for another worker, so the pool has room for all workers.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import types
from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  Cluster,
  ClusterError,
  PortTakenError,
  Server,
  as_task,
  exposure_warning,
  make_session_config,
  nearest_name,
)
from tf1ps.compat import TIMING, Error, held_back
from tf1ps.launch.ports import find_free_addresses
from tf1ps.program import Program, as_program
from tf1ps.session import JobFailedError
from tf1ps.state import ContainerError, clear_container, wait_for_end
from tf1ps.training import Options, Outcome, check_options, train
from tf1ps.transfer import pack_bytes_of_process

_log = logging.getLogger("tf1ps")
_TRIES = 5  # tries of new ports, until no other process has taken one of them
_END_LIMIT = 30.0  # seconds after a failure; a thread cannot be killed, and may be building a graph
# The servers of clusters that have ended, by the shape of the cluster. A process global, because
# a process cannot stop a server.
_idle: Dict[Tuple[int, int, bool], List[List[Server]]] = {}
_kept: List[Server] = []  # all servers: TensorFlow 1 must not destroy a server while it works


class TaskFailedError(Error, RuntimeError):
  """A worker of a cluster in this process failed; the worker's own error is chained.

  Attributes:
    task: the worker's name, "/job:worker/task:1".
  """

  def __init__(self, task: str, error: BaseException):
    super().__init__("%s failed: %s: %s" % (task, type(error).__name__, error))
    self.task = task


class LocalCluster:
  """The servers of a cluster in this process.

  Attributes:
    servers: {job: [server]}: the `tf1ps.Server`s of "ps", "worker" and perhaps "chief".
    chief: the server of the chief. Without a task "chief", worker 0 is the chief. A
      `ClusterCoordinator` needs the server of a task "chief".
    cluster: the `tf1ps.cluster.Cluster`, with the task of the chief.
    target: the target of the chief's server, for a session of your own.
  """

  def __init__(self, servers: List[Server]):
    """Takes the running servers of all tasks."""
    self.servers: Dict[str, List[Server]] = {}
    for server in servers:
      self.servers.setdefault(server.cluster.job_name, []).append(server)
    self.chief = next(server for server in servers if server.cluster.is_chief)
    self.cluster: Cluster = self.chief.cluster
    self.target: str = self.chief.target
    self.is_open = True
    self._busy = threading.Lock()
    self._lost: List[threading.Thread] = []  # workers that did not end

  @property
  def is_idle(self) -> bool:
    """Whether no worker thread of the last training is still running."""
    return not any(thread.is_alive() for thread in self._lost)

  def train(self, program: Union[str, os.PathLike, types.ModuleType, Tuple[Callable, Callable]],
            **options: Any) -> Outcome:
    """Trains a program to the job's end, each worker in a thread.

    Args:
      program: a module, its name, the path of a .py file, or the pair `(input_fn, model_fn)`. If a
        program has its own flags, parse them before, unless they are already parsed.
      **options: the fields of `tf1ps.training.Options`, which are flags of tf1ps-worker:
        `steps=100, sync_replicas=True`. None means the default.

    Returns:
      The chief's `tf1ps.training.Outcome`. `evaluation.metrics` has the metrics.

    Raises:
      ValueError: an option or the program is wrong.
      TaskFailedError: a worker failed. The others were stopped.
      RuntimeError: the cluster has ended, or trains in another thread.
    """
    made = _make_options(options)
    job = _Job(as_program(program), made)
    if not self.is_open:
      raise RuntimeError("this cluster has ended: train inside the `with` of local_cluster")
    if not (self._busy.acquire(False) and self.is_idle):
      raise RuntimeError("this cluster trains already: wait for the end, or open another cluster")
    try:
      names = [task.name for task in self.cluster.replicas]
      servers = [server for server in sum(self.servers.values(), [])
                 if server.cluster.task.name in names]
      try:
        return job.run(servers, self.chief)
      finally:
        self._lost = job.threads
    finally:
      self._busy.release()


class _Job:
  """A training on a cluster.

  Attributes:
    threads: the threads of the workers.
  """

  def __init__(self, program: Program, options: Options):
    self._program = program._replace(model_fn=self._with_hook(program.model_fn))
    self._options = options
    self.threads: List[threading.Thread] = []
    self._stops = threading.Event()
    self._outcomes: Dict[str, Outcome] = {}
    self._failures: List[Tuple[str, BaseException]] = []  # in the order in which they occurred

  def run(self, servers: List[Server], chief: Server) -> Outcome:
    """Trains; returns the chief's outcome, or raises TaskFailedError."""
    self.threads = [
      threading.Thread(target=self._train, args=(server,), daemon=True,
                       name="tf1ps: " + server.cluster.task.name) for server in servers]
    for thread in self.threads:
      thread.start()
    try:
      for thread in self.threads:
        while thread.is_alive() and not self._stops.is_set():
          thread.join(TIMING.poll_interval)
    finally:  # after a failure or an exception, the others have a limit
      self._stops.set()
      until = time.monotonic() + _END_LIMIT
      for thread in self.threads:
        thread.join(max(0.0, until - time.monotonic()))
      late = [thread.name for thread in self.threads if thread.is_alive()]
      if late:
        _log.warning("still at work %g s after the stop: %s", _END_LIMIT, ", ".join(late))
    if self._failures:
      # A worker that reports the failure of the job has not caused the failure.
      own = [each for each in self._failures if not isinstance(each[1], JobFailedError)]
      name, error = (own or self._failures)[0]
      raise TaskFailedError(name, error) from error
    outcome = self._outcomes[chief.cluster.task.name]
    if outcome.warning:
      _log.warning("%s", outcome.warning)
    return outcome

  def _train(self, server):
    name = server.cluster.task.name
    try:
      with as_task(server.record):
        if self._options.replication == "in_graph" and not server.cluster.is_chief:
          wait_for_end(server.record, self._stops)  # the chief runs steps on this worker
        else:
          self._outcomes[name] = train(self._program, server, self._options)
    except BaseException as error:
      self._failures.append((name, error))
      self._stops.set()

  def _with_hook(self, model_fn):
    def build(features, labels, mode):
      spec = model_fn(features, labels, mode)
      if mode != "train" or not isinstance(getattr(spec, "hooks", None), (list, tuple)):
        return spec
      return spec._replace(hooks=[*spec.hooks, _StopHook(self._stops)])

    return build


class _StopHook(tf.train.SessionRunHook):
  def __init__(self, event: threading.Event):
    self._event = event

  def after_run(self, run_context, run_values):
    if self._event.is_set():
      run_context.request_stop()


@contextlib.contextmanager
def local_cluster(num_ps: int = 1, num_workers: int = 2, *,
                  chief: bool = False) -> Iterator[LocalCluster]:
  """Starts a cluster in this process; a context manager that yields the `LocalCluster`.

  After the block the variables on the ps no longer exist. The servers stay for the next cluster of
  the same shape, until the process ends.

  Args:
    num_ps: the number of ps, 1 or more.
    num_workers: the number of workers, 1 or more.
    chief: whether there is also a task "chief", which a `ClusterCoordinator` needs. In `train` the
      chief is an additional worker.

  Raises:
    ClusterError: a number is wrong, or TensorFlow executes eagerly.
  """
  shape = _check_shape(num_ps, num_workers, chief)
  idle = _idle.setdefault(shape, [])
  servers = idle.pop() if idle else _start(*shape)
  cluster = LocalCluster(servers)
  try:
    yield cluster
  finally:
    cluster.is_open = False
    if cluster.is_idle and _clear(servers):
      idle.append(servers)


def _check_shape(num_ps, num_workers, chief):
  for name, value in (("num_ps", num_ps), ("num_workers", num_workers)):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
      raise ClusterError("local_cluster: %s must be an integer of 1 or more, got %r" % (
        name, value))
  if tf.executing_eagerly():
    raise ClusterError("local_cluster needs graphs, but TensorFlow executes eagerly here: call "
                       "tf.compat.v1.disable_v2_behavior() at the start, or import tf1ps.v1 as tf")
  return num_ps, num_workers, bool(chief)


def _start(num_ps, num_workers, chief) -> List[Server]:
  """Starts the servers; tries again with other ports if some ports were taken meanwhile."""
  count = num_ps + num_workers + chief
  config = make_session_config(inter_op_parallelism_threads=max(os.cpu_count() or 1, 2 * count))
  tries = 0
  while True:
    tries += 1
    addresses = find_free_addresses(count)
    jobs = {"ps": addresses[:num_ps], "worker": addresses[num_ps:num_ps + num_workers]}
    if chief:
      jobs["chief"] = addresses[-1:]
    try:
      servers = []
      with held_back(os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0" and "info" or "warning"):
        for job, there in jobs.items():
          for index in range(len(there)):
            servers.append(Server(jobs, job, index, config=config))
            _kept.append(servers[-1])
    except PortTakenError:
      if tries == _TRIES:
        raise
      continue
    warning = exposure_warning(servers[0].cluster)
    if warning:
      _log.warning("%s", warning)
    return servers


def _clear(servers) -> bool:
  """Clears the servers' variables; returns whether all servers answered."""
  try:
    clear_container("", [server.cluster.task for server in servers])
  except ContainerError as error:
    _log.warning("%s", error)
    return False
  return True


def _make_options(given) -> Options:
  known = [option for option in Options._fields if option != "config"]
  for name in given:
    if name not in known:
      raise ValueError("train has no option %s: %s" % (name, nearest_name(name, known)))
  given = {name: value for name, value in given.items() if value is not None}
  made = Options(**{"pack_bytes": pack_bytes_of_process(), **given})
  if made.checkpoint_dir is not None:
    made = made._replace(checkpoint_dir=os.fspath(made.checkpoint_dir))
  try:
    check_options(made)
  except TypeError as error:
    raise ValueError("train: an option has a value of a wrong type: %s" % error) from error
  for name, alone in (("replication", "all_reduce"), ("num_clones", None)):
    value = getattr(made, name)
    if (value > 1) if alone is None else (value == alone):
      raise ValueError("train: %s=%s needs a process for each worker: use tf1ps.run_local" % (
        name, value))
  return made


@atexit.register
def _forget():
  _idle.clear()
  _kept.clear()
