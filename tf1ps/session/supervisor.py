"""`tf1ps.Supervisor`, a drop-in for `tf.train.Supervisor`.

It has the same arguments, methods and default operations. Its session starts, runs, recovers and
ends like that of a `MonitoredTrainingSession`. It differs from TensorFlow's Supervisor as follows:

1. It starts when the cluster is ready, or names the missing tasks. The servers keep their live
   state when a chief comes back. A worker is ready within two
   seconds of the chief.
2. A run is repeated in a new session when a ps was lost and has come back.
3. `stop` is bounded, and the chief saves after the last step. When the session is closed, or else
   when the program's code ends, the chief waits for the other workers, saves their steps, and
   releases the ps; the other workers report their end. A program need neither call `stop` nor close
   the session.
4. A `SyncReplicasOptimizer` of the graph needs no hook of the program: the worker joins it, watches
   it and leaves it, whatever the program gives as `local_init_op` and `ready_for_local_init_op`.
5. An error of a summary is logged once; training goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import (
  Any,
  Callable,
  ContextManager,
  Dict,
  Iterable,
  Iterator,
  List,
  Mapping,
  Optional,
  Sequence,
  Union,
)

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker, find_global_step, latest_checkpoint
from tf1ps.cluster import latest_record
from tf1ps.compat import TIMING, error_line, operations_of
from tf1ps.pipeline import Coordinator, start_queue_runners
from tf1ps.replication import sync_optimizers
from tf1ps.session import initialise, monitored_session, packing, summaries, supervised_session
from tf1ps.session import settings as settings_lib
from tf1ps.session.settings import Interval, SessionSettings

_log = logging.getLogger("tf1ps")
_BY_TASK = monitored_session.IS_CHIEF_BY_TASK
_USE_DEFAULT: Any = 0  # TensorFlow's value of Supervisor.USE_DEFAULT


class Supervisor:
  """A `tf.train.Supervisor` that starts within limits, recovers, and ends the job.

  Attributes:
    graph: the graph.
    is_chief: whether this task initialises, saves and ends the job.
    coord: the `tf1ps.Coordinator` of the threads of `loop` and `start_queue_runners`.
    init_op, init_feed_dict, ready_op, ready_for_local_init_op, local_init_op, summary_op, saver,
      global_step, summary_writer, save_summaries_secs, save_model_secs: the values in use, or None.
      Only the chief has a summary_writer and the two intervals.
    save_path: the path of checkpoints before "-STEP"; None without a logdir.
    session_manager: the given manager, or a manager of the same operations, for programs that read
      this attribute. The Supervisor does not use the manager to create its session.
  """

  USE_DEFAULT = _USE_DEFAULT

  def __init__(self, graph: Optional[tf.Graph] = None,
               ready_op: Optional[tf.Tensor] = _USE_DEFAULT,
               ready_for_local_init_op: Optional[tf.Tensor] = _USE_DEFAULT,
               is_chief: bool = _BY_TASK, init_op: Optional[tf.Operation] = _USE_DEFAULT,
               init_feed_dict: Optional[Mapping[tf.Tensor, Any]] = None,
               local_init_op: Optional[tf.Operation] = _USE_DEFAULT,
               logdir: Optional[str] = None, summary_op: Optional[tf.Tensor] = _USE_DEFAULT,
               saver: Optional[tf.train.Saver] = _USE_DEFAULT,
               global_step: Optional[tf.Variable] = _USE_DEFAULT,
               save_summaries_secs: float = 120, save_model_secs: float = 600,
               recovery_wait_secs: float = 30, stop_grace_secs: float = 120,
               checkpoint_basename: str = "model.ckpt",
               session_manager: Optional[tf.train.SessionManager] = None,
               summary_writer: Optional[tf.summary.FileWriter] = _USE_DEFAULT,
               init_fn: Optional[Callable[[tf.Session], Any]] = None,
               local_init_run_options: Optional[tf.RunOptions] = None, *,
               start_timeout: float = settings_lib.START_TIMEOUT,
               end_timeout: float = settings_lib.END_TIMEOUT,
               heartbeat_timeout: Optional[float] = None):
    """Creates the Supervisor, like TensorFlow's, after the whole graph was built.

    An operation that is not given is the first operation in TensorFlow's collection for it. If that
    collection is empty, it is TensorFlow's default.

    Args:
      graph: the graph; None: the default graph.
      ready_op: a string vector that is empty once the model can be used; None: not asked.
      ready_for_local_init_op: a string vector that is empty once the chief has initialised.
      is_chief: whether this task initialises, saves and ends the job. Not given: whether it is the
        chief of the cluster of this process's `tf1ps.Server`; true without a server.
      init_op: the operation that initialises the model without a checkpoint; None: no operation.
      init_feed_dict: the feeds of init_op.
      local_init_op: the operation that initialises this task's own state; None: no operation.
        A `local_init_op` of a `SyncReplicasOptimizer` selects the default.
      logdir: the directory of checkpoints and events, or None.
      summary_op: a string scalar that is written every save_summaries_secs; None: no summaries.
      saver: a `tf.train.Saver`; None: nothing is saved or restored.
      global_step: a scalar, also a float, that counts steps; None: steps are not counted.
      save_summaries_secs: seconds between summaries; 0: no summaries.
      save_model_secs: seconds between checkpoints; 0: no checkpoints.
      recovery_wait_secs: of no effect: a worker looks for its chief several times per second.
      stop_grace_secs: seconds that threads have to end in `stop`.
      checkpoint_basename: the names of checkpoints before "-STEP".
      session_manager: a `tf.train.SessionManager` whose operations replace ready_op,
        ready_for_local_init_op and local_init_op, or None.
      summary_writer: a `tf.summary.FileWriter`; None: no summaries.
      init_fn: called with the session after init_op.
      local_init_run_options: of no effect: the start has its own limits.
      start_timeout: seconds until the chief and every task that the graph uses must have joined.
      end_timeout: seconds without a step of any missing worker until the chief gives up its wait.
      heartbeat_timeout: seconds of silence until a task is lost; None: the server's.

    Raises:
      ValueError: a session_manager of another class, a limit that is not positive, or, with
        is_chief=False, a variable without a device.
      RuntimeError: eager execution is on.
    """
    if tf.executing_eagerly():
      raise RuntimeError("Supervisors are incompatible with eager execution. Call "
                         "tf.disable_v2_behavior() first")
    if session_manager is not None:
      if type(session_manager) is not tf.train.SessionManager:
        raise ValueError("session_manager must be a tf.train.SessionManager, got %r: the "
                         "Supervisor takes its operations, and creates the session itself" % (
                           session_manager,))
      local_init_op, ready_op, ready_for_local_init_op = operations_of(session_manager)
    settings_lib.check_limits(start_timeout=start_timeout, end_timeout=end_timeout,
                        heartbeat_timeout=heartbeat_timeout)
    self.graph = graph or tf.get_default_graph()
    if not is_chief:
      _check_devices(self.graph)
    self.is_chief = is_chief = monitored_session.chief_or_not(is_chief, latest_record())
    self.init_feed_dict = init_feed_dict
    self._limits: Dict[str, Any] = dict(start_timeout=start_timeout, end_timeout=end_timeout,
                                        heartbeat_timeout=heartbeat_timeout)
    self._init_fn, self._stop_grace_secs = init_fn, stop_grace_secs
    self._checkpoint_basename = checkpoint_basename
    self._logdir = logdir if is_chief else None
    self.save_path = os.path.join(self._logdir, checkpoint_basename) if self._logdir else None
    self.save_summaries_secs = save_summaries_secs if is_chief else None
    self.save_model_secs = save_model_secs if is_chief else None
    self._session: Optional[supervised_session.SupervisedSession] = None
    self._says_summary_error = True
    with self.graph.as_default():
      self._sync = sync_optimizers(self.graph)
      for optimizer in self._sync:
        optimizer.join_by_hook()
      self._choose_operations(init_op, local_init_op, ready_op, ready_for_local_init_op)
      self._choose_outputs(saver, summary_op, global_step, summary_writer)
      self.coord = Coordinator(check_queue_runners=False)
    self.session_manager = session_manager or tf.train.SessionManager(
      local_init_op=self.local_init_op, ready_op=self.ready_op,
      ready_for_local_init_op=self.ready_for_local_init_op, graph=self.graph)

  def _choose_operations(self, init_op, local_init_op, ready_op, ready_for_local_init_op):
    keys = tf.GraphKeys
    self.ready_op = _given_or(ready_op, keys.READY_OP, tf.report_uninitialized_variables)
    self.ready_for_local_init_op = _given_or(
      ready_for_local_init_op, keys.READY_FOR_LOCAL_INIT_OP, lambda: None)
    self.init_op = _given_or(init_op, keys.INIT_OP, tf.global_variables_initializer)
    if hasattr(self.init_op, "mark_used"):
      self.init_op.mark_used()  # else TensorFlow warns at the end of a worker that never runs it
    if any(local_init_op is join for optimizer in self._sync for join in optimizer.joins):
      local_init_op = _USE_DEFAULT
    self.local_init_op = _given_or(local_init_op, keys.LOCAL_INIT_OP, lambda: tf.group(
      tf.local_variables_initializer(), tf.tables_initializer()))

  def _choose_outputs(self, saver, summary_op, global_step, summary_writer):
    keys = tf.GraphKeys
    self.saver = _given_or(
      saver, keys.SAVERS, lambda: tf.train.Saver() if tf.global_variables() else None)
    self.summary_op = _given_or(summary_op, keys.SUMMARY_OP, tf.summary.merge_all)
    self.global_step = _given_or(global_step, keys.GLOBAL_STEP, find_global_step)
    self.summary_writer, self._owns_writer = None, summary_writer is _USE_DEFAULT
    self._has_graph = False  # whether the event file has the graph
    self._begins_file = False  # whether the next session begins an event file
    if self.is_chief and summary_writer is not _USE_DEFAULT:
      self.summary_writer = summary_writer
    elif self._logdir:
      self.summary_writer = tf.summary.FileWriterCache.get(self._logdir)
      self._has_graph = True

  # The session.

  def prepare_or_wait_for_session(self, master: str = "", config: Optional[tf.ConfigProto] = None,
                                  wait_for_checkpoint: bool = False, max_wait_secs: float = 7200,
                                  start_standard_services: bool = True) -> tf.Session:
    """Opens the session: the chief restores or initialises, another worker waits for the chief.

    Queue runners start with the session.

    Args:
      master: the target of this task's server; "" trains in this process.
      config: a `tf.ConfigProto`.
      wait_for_checkpoint: whether the chief waits for a checkpoint and never initialises.
      max_wait_secs: seconds that a living chief may take to initialise.
      start_standard_services: whether the chief writes summaries, and saves checkpoints.

    Returns:
      A `SupervisedSession`, which is a `tf.Session`.

    Raises:
      TaskUnavailableError: a task, or the chief, did not join within start_timeout.
      PathError, ClusterMismatchError: a task was started with another cluster.
      GraphMismatchError: this graph differs from the chief's.
      CheckpointError: the checkpoint directory cannot be trusted.
      SessionCreationError: the session could not be created.
      SystemExit: with code 0, in a worker that was started again after it had done its part.
    """
    self.coord.clear_stop()
    if self._begins_file:
      summaries.begin_event_file(self.summary_writer)
      self._begins_file = False
    elif self.summary_writer is not None:
      self.summary_writer.reopen()
    if wait_for_checkpoint and self.is_chief:
      _await_checkpoint(self._logdir, max_wait_secs)
    saves = bool(start_standard_services and self._logdir and self.saver and self.save_model_secs)
    self._write_graph(saves)
    counts_steps = start_standard_services and self.global_step is not None
    membership = monitored_session.membership_of(
      master, self.is_chief, self._logdir, self._limits["heartbeat_timeout"])
    if membership is not None:
      packing.pack_once(self.graph, membership.cluster)
    with monitored_session.leaves_if_done(master), self.graph.as_default():
      monitored = monitored_session.open_session(
        membership, GlobalStepTracker(find_step=lambda: self.global_step),
        [optimizer.make_session_run_hook(self.is_chief) for optimizer in self._sync],
        SessionSettings(
          self.is_chief, self._logdir if self.saver else None, self._scaffold(), config, master,
          Interval(secs=self.save_model_secs if saves else None),
          events=self.summary_writer or self._logdir,
          log_step_count_steps=100 if counts_steps else 0,
          max_wait_secs=max_wait_secs, stop_grace_period_secs=self._stop_grace_secs,
          checkpoint_basename=self._checkpoint_basename, needs_global_step=False, **self._limits))
    self._session = supervised_session.SupervisedSession(
      monitored, self.graph, recovery_limit=self._limits["start_timeout"],
      request_stop=self.coord.request_stop)
    if start_standard_services and self.is_chief:
      self.start_standard_services(self._session)
    return self._session

  def _write_graph(self, saves: bool):
    """Writes the graph as the program has built it. A session that saves writes graph.pbtxt."""
    if self._logdir and not saves:
      tf.train.write_graph(summaries.small_definition(self.graph), self._logdir, "graph.pbtxt")
    if self.summary_writer is not None and not self._has_graph:
      summaries.write_graph(self.summary_writer, self.graph)
      self._has_graph = True

  def wait_for_session(self, master: str = "", config: Optional[tf.ConfigProto] = None,
                       max_wait_secs: float = 7200) -> tf.Session:
    """Waits for the session that the chief prepares, like `prepare_or_wait_for_session`.

    Raises ValueError in the chief.
    """
    if self.is_chief:
      raise ValueError("the chief does not wait: call prepare_or_wait_for_session")
    return self.prepare_or_wait_for_session(master, config, max_wait_secs=max_wait_secs)

  @contextlib.contextmanager
  def managed_session(self, master: str = "", config: Optional[tf.ConfigProto] = None,
                      start_standard_services: bool = True, close_summary_writer: bool = True
                      ) -> Iterator[supervised_session.SupervisedSession]:
    """Returns a context manager with a session; at its end the session stops and is closed.

    An error of the block, or of a thread, is raised after the session stops. OutOfRangeError is a
    clean end.
    """
    session = self.prepare_or_wait_for_session(
      master, config, start_standard_services=start_standard_services)
    try:
      try:
        yield session
      except Exception as error:
        self.request_stop(error)
      self.stop(close_summary_writer=close_summary_writer)
    except BaseException as error:
      session.end(error)
      raise
    session.close()

  def _scaffold(self) -> tf.train.Scaffold:
    with self.graph.as_default():
      init_fn = self._init_fn
      return tf.train.Scaffold(
        init_op=_or_nothing(self.init_op), init_feed_dict=self.init_feed_dict,
        init_fn=None if init_fn is None else lambda scaffold, session: init_fn(session),
        ready_op=tf.zeros([0], tf.string) if self.ready_op is None else self.ready_op,
        ready_for_local_init_op=self.ready_for_local_init_op,
        local_init_op=_or_nothing(self.local_init_op), saver=self.saver,
        summary_op=self.summary_op)

  # Services and threads.

  def start_standard_services(self, sess: tf.Session) -> List[threading.Thread]:
    """Starts the thread that writes summaries; returns the threads.

    Checkpoints and the rate of steps need no thread. Raises RuntimeError if this is not the chief.
    """
    if not self.is_chief:
      raise RuntimeError("Only chief supervisor can start standard services: call "
                         "start_standard_services only where supervisor.is_chief")
    if not self._logdir:
      _log.warning("no checkpoints and summaries: the Supervisor has no logdir")
    if not (self.save_summaries_secs and self.summary_writer is not None):
      return []
    if self.global_step is not None:  # like TensorFlow's Supervisor: a rate of zero steps
      summaries.write_summary(
        self.summary_writer, summaries.rate_summary(0.0), int(sess.run(self.global_step)))
    if self.summary_op is None:
      return []
    return [self.loop(self.save_summaries_secs, self._write_summary, (sess,))]

  def start_queue_runners(self, sess: tf.Session,
                          queue_runners: Optional[Iterable[tf.train.QueueRunner]] = None
                          ) -> List[threading.Thread]:
    """Starts further queue runners; returns their threads.

    The queue runners of the graph's collection have run since the session was created.
    """
    if queue_runners is None:
      if sess is self._session:
        return []
      with self.graph.as_default():
        return start_queue_runners(sess, self.coord)
    threads = []
    for runner in queue_runners:
      threads.extend(runner.create_threads(sess, coord=self.coord, daemon=True, start=True))
    return threads

  def loop(self, timer_interval_secs: Optional[float], target: Callable,
           args: Optional[Sequence[Any]] = None,
           kwargs: Optional[Mapping[str, Any]] = None) -> threading.Thread:
    """Starts a thread that calls a function every timer_interval_secs (None: without a pause).

    Returns a `tf.train.LooperThread` of `coord`, which `stop` ends.
    """
    thread = tf.train.LooperThread(self.coord, timer_interval_secs, target, args, kwargs)
    thread.start()
    return thread

  def summary_computed(self, sess: tf.Session, summary: Union[bytes, tf.Summary],
                       global_step: Optional[int] = None) -> None:
    """Writes a summary of the program; raises RuntimeError without a summary writer."""
    if self.summary_writer is None:
      raise RuntimeError("Writing a summary requires a summary writer. The chief's Supervisor has "
                         "a writer if it has a logdir: call summary_computed only where "
                         "supervisor.is_chief")
    if global_step is None and self.global_step is not None:
      global_step = int(sess.run(self.global_step))
    self.summary_writer.add_summary(summary, global_step)

  def _write_summary(self, session):
    try:
      step = self.global_step if self.global_step is not None else []
      summary, step = session.run([self.summary_op, step])
      self.summary_writer.add_summary(summary, int(step) if self.global_step is not None else None)
    except Exception as error:
      if self._says_summary_error and not self.should_stop():
        self._says_summary_error = False
        _log.warning(
          "a summary was not written, and training goes on: %s. Where summaries need feeds, create "
          "the Supervisor with summary_op=None and call summary_computed", error_line(error))

  # The end.

  def stop(self, threads: Optional[Iterable[threading.Thread]] = None,
           close_summary_writer: bool = True,
           ignore_live_threads: bool = False) -> None:
    """Ends the threads, and saves. The session stays open, and with it the job.

    Args:
      threads: further threads to end.
      close_summary_writer: whether the event file ends, so that the next session begins a new
        file.
      ignore_live_threads: whether a thread that does not end within stop_grace_secs is ignored.

    Raises:
      RuntimeError: a thread did not end.
      Exception: the first error of a thread, or the error given to `request_stop`.
    """
    self.coord.request_stop()
    try:
      self.coord.join(threads, stop_grace_period_secs=self._stop_grace_secs,
                      ignore_live_threads=ignore_live_threads)
      if self._session is not None:
        self._session.save_last()
    finally:
      if close_summary_writer and self.summary_writer is not None:
        self.summary_writer.add_session_log(tf.SessionLog(status=tf.SessionLog.STOP))
        self._begins_file, self._has_graph = True, False
        if self._owns_writer:  # the session's hooks write there until it is closed
          self.summary_writer.flush()
        else:
          self.summary_writer.close()

  def request_stop(self, ex: Union[BaseException, tuple, None] = None) -> None:
    """Requests that the threads end; `stop` raises the first error given here."""
    self.coord.request_stop(ex=ex)

  def should_stop(self) -> bool:
    """Whether a stop was requested, the input has ended, or a signal ends the process."""
    return self.coord.should_stop() or (
      self._session is not None and self._session.should_stop())

  def stop_on_exception(self) -> ContextManager[None]:
    """Returns a context manager that requests a stop when an exception is raised inside."""
    return self.coord.stop_on_exception()

  def wait_for_stop(self) -> None:
    """Waits until `should_stop`."""
    while not self.should_stop():
      self.coord.wait_for_stop(TIMING.poll_interval)

  # The names from before TensorFlow 0.8, which TensorFlow 2 still has.
  PrepareSession = prepare_or_wait_for_session
  StartQueueRunners = start_queue_runners
  StartStandardServices = start_standard_services
  Stop, RequestStop, Loop = stop, request_stop, loop
  ShouldStop, StopOnException, WaitForStop = should_stop, stop_on_exception, wait_for_stop
  SummaryComputed = summary_computed


def _given_or(given, collection: str, make: Callable):
  """Returns the given value, or the collection's first value, or else the result of `make`."""
  if given is not _USE_DEFAULT:
    return given
  values = tf.get_collection_ref(collection)
  if not values:
    made = make()
    if made is None:
      return None
    values.append(made)
  return values[0]


def _check_devices(graph):
  for op in graph.get_operations():
    if op.type in ("Variable", "VariableV2") and not op.device:
      raise ValueError("When using replicas, all Variables must have their device set: %s has "
                       "none. Build the graph under tf.train.replica_device_setter" % op.name)


def _or_nothing(operation):
  return tf.no_op() if operation is None else operation


def _await_checkpoint(directory: Optional[str], limit: float) -> None:
  if not directory:
    raise ValueError("wait_for_checkpoint needs a logdir")
  deadline = time.monotonic() + limit
  while latest_checkpoint(directory) is None:
    if time.monotonic() > deadline:
      raise initialise.SessionTimeoutError(limit, "there is no checkpoint in " + directory)
    time.sleep(TIMING.poll_interval)
