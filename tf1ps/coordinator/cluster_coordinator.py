"""`ClusterCoordinator`: a client that owns the program and schedules its steps on workers.

The coordinator's own session is a `MonitoredTrainingSession` on a graph with all functions. It
starts the run, initialises or restores the variables, saves checkpoints, notices a lost ps, and
releases the ps and the workers at the end. One thread drives this session. One thread for each
worker runs the steps (workers.py). Another such thread, with a separate queue, serves `run`: its
task is the coordinator's task.
"""

from __future__ import annotations

import logging
import threading
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Type, Union

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker, find_global_step
from tf1ps.cluster import ClusterError, Server, make_session_config
from tf1ps.compat import START_TIMEOUT, TIMING, signal_exit_code
from tf1ps.coordinator.functions import Builder, PerWorkerDataset, Signature, split
from tf1ps.coordinator.steps import RemoteValue, StepQueue
from tf1ps.coordinator.workers import WorkerThread, WorkerWatch
from tf1ps.placement import replica_device_setter
from tf1ps.session import Interval, Membership, SessionSettings, open_session

_log = logging.getLogger("tf1ps")


class ClusterCoordinator:
  """Schedules steps on the workers of a cluster, like `tf.distribute.coordinator`'s class.

  Use it as a context manager: the end of the block waits for all steps, saves, and releases the ps
  and the workers. A scheduled function is called once per worker, in that worker's graph. Variables
  that the function creates are on the ps, and all workers share them by name.

  Attributes:
    graph: the coordinator's own graph. Before the start you may build in it. It has the operations
      of each function, and the global step if a function creates a global step.
  """

  def __init__(
    self,
    server: Server,
    checkpoint_dir: Optional[str] = None,
    *,
    save_checkpoint_secs: Optional[float] = 600.0,
    steps_per_execution: Union[int, str] = "auto",
    step_timeout: float = 600.0,
    max_pending: int = 1000,
    partitioner: Optional[Callable] = None,
    start_timeout: float = START_TIMEOUT
  ):
    """Prepares; the first `schedule` starts the run.

    Args:
      server: the server of this process, the only task of the job "chief". The ps and the workers
        wait in the `join` of their own servers.
      checkpoint_dir: where checkpoints are saved and restored from, or None.
      save_checkpoint_secs: seconds between checkpoints; None: only at the end.
      steps_per_execution: the number of steps that a worker makes in one run of its session. It
        makes so many if that number of steps of a function wait, and if all of their arguments are
        per-worker values. "auto": the number that is fastest by the worker's own measurements, at
        most 16, in runs of at most 65 ms. Each step reads the updates of the step before. A lost
        run is repeated as a whole.
      step_timeout: seconds after which a step that does not end counts as lost.
      max_pending: the number of steps that wait for a worker before `schedule` waits.
      partitioner: divides large variables over the ps, such as
        `tf.fixed_size_partitioner(2)`; None: no variable is divided.
      start_timeout: seconds until every ps and at least one worker must answer. The same limit
        holds later, while steps wait and no worker answers.

    Raises:
      ClusterError: the server is not a chief with ps and workers.
      ValueError: a limit is not positive.
    """
    cluster = server.cluster
    if cluster.job_name not in ("chief", "master") or not cluster.ps or not cluster.tasks("worker"):
      raise ClusterError(
        "a ClusterCoordinator needs the server of the job chief, in a cluster with the jobs ps and "
        "worker; this is %s of a cluster with the jobs %s" % (
          cluster.task.name, ", ".join(sorted(cluster.jobs))))
    at_once = None if steps_per_execution == "auto" else steps_per_execution
    if isinstance(at_once, str):
      raise ValueError(
        "steps_per_execution must be \"auto\" or a number of steps, got %r" % at_once)
    for name, value in (("steps_per_execution", 1 if at_once is None else at_once),
                        ("step_timeout", step_timeout), ("max_pending", max_pending),
                        ("start_timeout", start_timeout)):
      if not value > 0:
        raise ValueError("%s must be above 0, got %r" % (name, value))
    self.graph = tf.Graph()
    self._server, self._cluster, self._checkpoint_dir = server, cluster, checkpoint_dir
    self._save_secs, self._step_timeout = save_checkpoint_secs, step_timeout
    self._at_once = at_once
    self._partitioner, self._start_timeout = partitioner, start_timeout
    self._queue, self._own_queue = StepQueue(max_pending), StepQueue(1)
    self._signatures: Dict[Any, Signature] = {}
    self._builder = self._make_builder(self.graph, cluster.task)
    self._trial: Optional[Builder] = None
    self._variables: Set[str] = set()  # the variables that have values, from the start on
    self._workers: List[WorkerThread] = []
    self._own: Optional[WorkerThread] = None  # runs functions on the coordinator itself
    self._session = None
    self._state: Any = None  # a _StateWatch, from the first step on
    self._watch: Optional[WorkerWatch] = None
    self._has_ended = False

  def __enter__(self) -> "ClusterCoordinator":
    return self

  def __exit__(self, exception_type: Optional[Type[BaseException]],
               exception_value: Optional[BaseException],
               traceback: Optional[types.TracebackType]) -> None:
    if exception_type is not None:
      self._end(exception_type, exception_value, traceback)
      return
    try:
      if self._session is not None:
        self.join()
    except BaseException as error:
      self._end(type(error), error, error.__traceback__)
      raise
    self._end(None, None, None)

  # What TensorFlow 2's class has, too.

  def create_per_worker_dataset(self, dataset_fn: Callable) -> PerWorkerDataset:
    """Returns a dataset that each worker makes by itself, from a function without arguments.

    Pass `iter(dataset)` among the arguments of `schedule`; the step's function gets its worker's
    iterator, and calls `get_next()` on it. A worker that comes back begins its dataset again.
    """
    return PerWorkerDataset(dataset_fn)

  def schedule(self, function: Callable, args: Sequence[Any] = (),
               kwargs: Optional[Mapping[str, Any]] = None, *, stays: bool = False,
               timeout: Optional[float] = None) -> RemoteValue:
    """Schedules a step: the function with these arguments, on any worker.

    A step runs at least once. It runs again if its worker is lost before the result is reported.

    Args:
      function: builds a step in a worker's graph; returns tensors and operations in tuples and
        dicts. It is called once per worker and kind of arguments, not once per step.
      args: positional arguments: numbers, strings and arrays, which are fed, or per-worker values.
      kwargs: keyword arguments, likewise.
      stays: whether the result stays on the worker until `RemoteValue.fetch`. A large result that
        the program needs later, or never, then costs no transfer now. If the worker is lost, the
        result is lost, too.
      timeout: seconds to wait for a place in the queue; None waits.

    Returns:
      A `RemoteValue` for the result.

    Raises:
      FunctionError: the function or an argument cannot be scheduled. `schedule` also raises errors
        of the function itself, because it builds the function now.
      StepError: an earlier step failed; the error is raised once.
      TimeoutError: the queue has had no place within the timeout.
    """
    signature, values = split(function, args, kwargs)
    signature = self._add(signature)
    self._start()
    return self._queue.put(signature, values, stays, timeout, self._check)

  def join(self, timeout: Optional[float] = None) -> None:
    """Waits until all scheduled steps have ended.

    Raises:
      StepError: a step failed; the waiting steps are cancelled.
      TaskUnavailableError: no worker has answered for `start_timeout` seconds.
      TimeoutError: steps are left after `timeout` seconds.
    """
    self._queue.join(timeout, self._check)

  def done(self) -> bool:
    """Returns whether every scheduled step has ended."""
    self._check()
    return self._queue.is_empty()

  def fetch(self, values: Any, timeout: Optional[float] = None) -> Any:
    """Returns a structure of `RemoteValue`s in which the results replace the `RemoteValue`s.

    Raises the errors of `RemoteValue.fetch`.
    """
    if isinstance(values, RemoteValue):
      return values.fetch(timeout)
    if isinstance(values, dict):
      return {key: self.fetch(value, timeout) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
      return type(values)(self.fetch(value, timeout) for value in values)
    return values

  # More.

  def run(self, function: Callable, args: Sequence[Any] = (),
          kwargs: Optional[Mapping[str, Any]] = None, *, timeout: Optional[float] = None) -> Any:
    """Runs a function on the coordinator itself, now, and returns its result.

    It is `session.run` for a function, for example for the inline evaluation of a small model
    between two epochs, or for a look at a variable. The function reads the variables as they are on
    the ps. Steps under way may change the variables meanwhile, so call `join` before. A large
    evaluation is faster on the workers: schedule it.

    Args:
      function, args, kwargs: as for `schedule`. The coordinator has its own value for each of the
        per-worker values.
      timeout: seconds to wait for the result; None waits.

    Returns:
      The result as NumPy values, in the structure of the function.

    Raises:
      FunctionError: as for `schedule`.
      StepError: the function failed. Its number counts the calls of `run`.
      TimeoutError: the function has not ended within the timeout. The next call waits behind it.
    """
    signature, values = split(function, args, kwargs)
    signature = self._add(signature)
    self._start()
    if self._own is None:
      self._own = self._make_worker(self._cluster.task, self._own_queue)
      self._own.start()
    step = self._own_queue.put(signature, values, False, timeout, self._check)
    self._own_queue.join(timeout, self._check)
    return step.fetch(timeout)

  def build(self, function: Callable, args: Sequence[Any] = (),
            kwargs: Optional[Mapping[str, Any]] = None) -> None:
    """Builds a function before the first step, without scheduling it.

    A function that creates its own variables needs this call if it is scheduled after the start.
    """
    self._add(split(function, args, kwargs)[0])

  @property
  def retries(self) -> int:
    """How often a step, or a call of `run`, was repeated because its worker or a ps was lost."""
    return self._queue.retries + self._own_queue.retries

  @property
  def completed(self) -> Dict[str, int]:
    """The number of steps that each worker has completed, by the worker's name."""
    return {worker.task.name: worker.completed for worker in self._workers}

  @property
  def lost_updates(self) -> int:
    """The number of global steps after the restored checkpoint that were lost with a ps."""
    return self._state.lost_updates if self._state is not None else 0

  def _add(self, signature: Signature) -> Signature:
    known = self._signatures.get(signature.key)
    if known is None:
      if self._session is None:
        self._builder.build(signature)
      else:
        self._try(signature)
      known = self._signatures[signature.key] = signature
    return known

  def _try(self, signature):
    """Builds a function added after the start in a trial graph, where errors disturb no worker."""
    # After an error, the trial graph contains a part of the function, so it is not used again.
    builder, self._trial = self._trial, None
    if builder is None:
      builder = self._make_builder(tf.Graph(), self._cluster.task, self._variables)
      for known in self._signatures.values():
        builder.build(known)
    builder.build(signature)
    self._trial = builder

  def _make_builder(self, graph, task, variables=None) -> Builder:
    with graph.as_default():
      setter = replica_device_setter(
        cluster=self._cluster.cluster_spec(), worker_device=task.name, ps_strategy="greedy")
    return Builder(graph, setter, task.name + "/cpu:0", self._partitioner, variables)

  def _start(self):
    if self._session is not None:
      return
    if self._has_ended:
      raise RuntimeError("this coordinator has ended: create another coordinator")
    record = self._server.record
    with self.graph.as_default():
      self._variables = {v.op.name for v in tf.global_variables()}
      step = find_global_step()
      fetch = tf.no_op() if step is None else step.read_value()
      self._session = open_session(
        Membership(record, self._checkpoint_dir), GlobalStepTracker(), [], SessionSettings(
          True, self._checkpoint_dir, save_checkpoint=Interval(secs=self._save_secs),
          start_timeout=self._start_timeout, expects_all=False, awaits_workers=False,
          needs_global_step=False))
    self._state = _StateWatch(self._session, fetch, step is not None, self._fail)
    self._workers = [self._make_worker(task, self._queue) for task in self._cluster.tasks("worker")]
    self._watch = WorkerWatch(self._workers, self._queue, self._start_timeout)
    for thread in [self._state, self._watch, *self._workers]:
      thread.start()

  def _make_worker(self, task, queue) -> WorkerThread:
    return WorkerThread(
      task, self._make_builder(tf.Graph(), task, self._variables), self._server.record.target,
      self._config(task), queue, lambda: list(self._signatures.values()), self._state.wait,
      self._start_timeout, self._at_once)

  def _fail(self, error):
    for queue in (self._queue, self._own_queue):
      queue.fail(error)

  def _config(self, task):
    return make_session_config(
      base=self._server.record.config, operation_timeout_secs=self._step_timeout,
      device_filters=["/job:ps", task.name, self._cluster.task.name])

  def _check(self):
    """Ends the program after a signal, so that the end of the block saves; called in each wait."""
    if self._session is not None and self._session.lifecycle.signum is not None:
      raise SystemExit(signal_exit_code(self._session.lifecycle.signum))

  def _end(self, *error):
    self._has_ended = True
    for queue in (self._queue, self._own_queue):
      queue.close()
    for worker in self._workers + ([] if self._own is None else [self._own]):
      worker.stop(TIMING.steps_end_limit if error[0] is None else TIMING.leave_limit)
    for thread in (self._watch, self._state):
      if thread is not None:
        thread.stop()
    session, self._session = self._session, None
    if session is not None:
      with self.graph.as_default():  # the save at the end needs the graph
        session.__exit__(*error)


class _StateWatch:
  """A thread that runs the coordinator's own session, which recovers the state of a lost ps.

  Attributes:
    lost_updates: the number of global steps that were lost with a ps.
  """

  def __init__(self, session, fetch, counts_steps: bool, on_error: Callable):
    self.lost_updates = 0
    self._session, self._fetch, self._counts_steps = session, fetch, counts_steps
    self._on_error = on_error
    self._changed = threading.Condition()
    self._begun = self._ended = 0  # the number of runs that have begun, and that have ended
    self._closing = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: state of the ps")

  def start(self) -> None:
    self._thread.start()

  def stop(self) -> None:
    self._closing.set()
    with self._changed:
      self._changed.notify_all()
    self._thread.join(TIMING.replica_end_limit)

  def wait(self, interrupted: Callable[[], bool]) -> Optional[int]:
    """Waits for a run that begins from now on; returns the number of sessions so far, or None."""
    with self._changed:
      awaited = self._begun + 1
      while self._ended < awaited:
        if interrupted() or self._closing.is_set() or not self._thread.is_alive():
          return None
        self._changed.notify_all()
        self._changed.wait(TIMING.fast_poll_interval)
      return self._session.lifecycle.sessions

  def _watch(self):
    try:
      with self._session.graph.as_default():  # a save needs the graph
        self._look_on()
    except BaseException as error:
      self._on_error(error)

  def _look_on(self):
    last = 0
    while not self._closing.is_set() and not self._session.should_stop():
      with self._changed:
        self._begun += 1
        number = self._begun
      value = self._session.run(self._fetch)
      if self._counts_steps:
        if value < last:
          self.lost_updates += last - value
          _log.warning("a ps came back with global step %d: %d updates are lost", value,
                       last - value)
        last = value
      with self._changed:
        self._ended = number
        self._changed.notify_all()
        self._changed.wait(TIMING.poll_interval)
