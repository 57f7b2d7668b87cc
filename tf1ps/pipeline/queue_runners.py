"""Queue runners whose failures reach the consumer, and whose threads end.

`adopt_queue_runners` replaces each of TensorFlow's queue runners in a graph by a `Runner`. So any
code that starts the graph's queue runners starts these runners. In one session the threads of a
runner are a `_Group`. Each thread runs an enqueue operation repeatedly:

1. It enqueues until its input has ended, its queue is closed, or the coordinator stops.
2. After an error it tries the records of the run again in parts (record_retry.py). Either all good
   records are enqueued, and bad records are skipped by the graph's policy, or the thread fails.
3. A thread that fails records its error in the session's `Failures`. The runner's other threads
   enqueue the records that they have read, which may be earlier records.
4. The failed thread closes the queue and cancels no enqueue, so that all elements reach the
   consumer. If no thread fails, the last thread closes the queue.
5. The consumer's next run finds a closed and empty queue, even if the elements pass through further
   queues. Instead of the queue's OutOfRangeError, the run raises the recorded error, and the
   coordinators stop with this error.

When the coordinator stops, the queue is closed and waiting enqueues are cancelled. A thread that is
in Python or in a slow read does not notice, and is left behind.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, RecoverableSession
from tf1ps.compat import TIMING, error_line, is_refused_run
from tf1ps.pipeline import bad_records, record_retry
from tf1ps.pipeline.graph_input import input_of

_log = logging.getLogger("tf1ps")
_CONSEQUENCES = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
_failures_of_session: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Failures:
  """The error that ended the queue runners of a session; thread-safe.

  Attributes:
    error: the first error, or None. Later errors are its consequences.
  """

  def __init__(self):
    self.error: Optional[BaseException] = None
    self._coordinators = weakref.WeakSet()
    self._lock = threading.Lock()

  def stop_at_error(self, coord: tf.train.Coordinator) -> None:
    """Stops a coordinator with the error when the consumer gets it."""
    with self._lock:
      self._coordinators.add(coord)

  def record(self, error: BaseException, queue: str) -> None:
    """Records the error that ended the runner of the queue of this name."""
    with self._lock:
      if self.error is not None:
        return
      self.error = error
    _log.warning("the queue runner of %s has failed; the elements that it enqueued before are "
                 "still in the queue: %s", queue, error_line(error))

  def explain(self, error: BaseException) -> BaseException:
    """Returns the recorded error if a run's error is a consequence of it, else the run's error."""
    if self.error is None or not isinstance(error, _CONSEQUENCES):
      return error
    with self._lock:
      coordinators = list(self._coordinators)
    for coord in coordinators:
      if not coord.joined:
        coord.request_stop((type(self.error), self.error, self.error.__traceback__))
    return self.error


class RunnerCoordinator(tf.train.Coordinator):
  """A coordinator that accepts the failures and all threads of queue runners."""

  def add_failures(self, failures: Failures) -> None:
    """Called when queue runners start, with the failures of their session."""
    raise NotImplementedError


class RunnerThread(threading.Thread):
  """A thread of a queue runner; a coordinator does not need to wait for it.

  Attributes:
    enqueues: False for a thread that only ends other threads when the coordinator stops.
  """

  def __init__(self, enqueues: bool, **kwargs):
    """Creates the thread; further arguments are those of `threading.Thread`."""
    super().__init__(**kwargs)
    self.enqueues = enqueues


def failures_of(session) -> Failures:
  """Returns the failures of a session."""
  with _lock:
    if session not in _failures_of_session:
      _failures_of_session[session] = Failures()
    return _failures_of_session[session]


def connect(session, coord: Optional[tf.train.Coordinator]) -> Failures:
  """Passes the failures of a session to its consumer and to a coordinator, if any.

  Returns the failures, in which the session's runners record their errors.
  """
  failures = failures_of(session)
  explain_runs(session)
  if coord is not None:
    failures.stop_at_error(coord)
    if isinstance(coord, RunnerCoordinator):
      coord.add_failures(failures)
  return failures


def explain_runs(session) -> None:
  """Makes `run` and `make_callable` of a session object raise recorded errors.

  This changes the caller's session object, because `create_threads` gets the session from
  TensorFlow and cannot replace it.
  """
  if "run" in vars(session):
    return
  failures = failures_of(session)
  reference = weakref.ref(session)  # a strong reference would keep the session alive

  def run(*args, **kwargs):
    own = reference()
    return _explained(failures, type(own).run, own, *args, **kwargs)

  def make_callable(*args, **kwargs):
    own = reference()
    function = type(own).make_callable(own, *args, **kwargs)
    return lambda *values, **options: _explained(failures, function, *values, **options)

  session.run, session.make_callable = run, make_callable


def _explained(failures, function, *args, **kwargs):
  try:
    return function(*args, **kwargs)
  except _CONSEQUENCES as error:
    cause = failures.explain(error)
    if cause is error:
      raise
    raise cause from error


def class_of(session):
  """Returns the class with TensorFlow's `run`; the object's own `run` may explain errors."""
  return tf.Session if isinstance(session, tf.Session) else type(session)


def run_quietly(run, *args) -> None:
  """Calls a function of a session that may be closed, or whose server may be gone."""
  try:
    run(*args)
  except Exception:
    pass


class Runner(tf.train.QueueRunner):
  """A queue runner made from TensorFlow's queue runner, with the same queue and operations.

  Attributes:
    was_started: whether threads were made for any session.
    tracked: for each enqueue operation its `record_retry.TrackedEnqueue`, or None.
  """

  def __init__(self, stock: tf.train.QueueRunner):
    """Creates the runner in place of `stock`."""
    ops = [enqueue.op if isinstance(enqueue, tf.Tensor) else enqueue
           for enqueue in stock.enqueue_ops]
    super().__init__(
      stock.queue, ops, stock.close_op, stock.cancel_op, stock.queue_closed_exception_types)
    self.was_started = False
    self.tracked: List[Optional[record_retry.TrackedEnqueue]] = [None] * len(ops)
    self._is_tracked = False
    self._groups: List[Any] = []

  def track(self) -> None:
    """Tracks the enqueue operations, unless they are tracked or the graph is finalized."""
    graph = self.close_op.graph
    if not self._is_tracked and not graph.finalized:
      self._is_tracked = True
      with graph.as_default():
        self.tracked = [record_retry.track_records(op, number)
                        for number, op in enumerate(self.enqueue_ops)]

  def create_threads(self, sess, coord=None, daemon=False, start=False):
    """Like TensorFlow's; the session's runs raise the error that ended a runner.

    Returns no threads if the threads of an earlier call for this session still run.
    """
    if isinstance(sess, RecoverableSession):
      return sess.call_inside(lambda inside: self.create_threads(inside, coord, daemon, start))
    self._groups = [group for group in self._groups if group.is_running]
    if any(group.session is sess for group in self._groups):
      return []
    self.was_started = True
    self.track()
    group = _Group(self, sess, coord, connect(sess, coord))
    self._groups.append(group)
    threads = group.make_threads(self.enqueue_ops, self.tracked, daemon)
    if coord is not None:
      stopper = group.make_stopper(coord, daemon)
      threads.append(stopper)
      if isinstance(coord, RunnerCoordinator):
        for thread in group.threads:
          coord.register_thread(thread)
      # TensorFlow's coordinator waits for two minutes for a thread that does not end.
      coord.register_thread(stopper)
    if start:
      for thread in threads:
        thread.start()
    return threads


class _Group:
  """The threads of a runner in a session."""

  def __init__(self, runner, session, coord, failures):
    self.session = session
    self.threads = []
    self._runner, self._coord, self._failures = runner, coord, failures
    # The numbers of threads that have not ended, and of threads that still enqueue.
    self._running = self._busy = len(runner.enqueue_ops)
    self._is_ending = threading.Event()  # a thread has failed, or the coordinator stops
    self._is_stopping = False
    self._changed = threading.Condition()

  @property
  def is_running(self) -> bool:
    return self._running > 0

  def make_threads(self, ops, tracked, daemon: bool):
    """Makes a thread for each enqueue operation and its `TrackedEnqueue`, or None."""
    self.threads = [
      RunnerThread(True, target=self._work, args=pair, daemon=daemon or None,
                   name="tf1ps: queue runner %s" % pair[0].name) for pair in zip(ops, tracked)]
    return list(self.threads)

  def make_stopper(self, coord, daemon: bool):
    """Makes the thread that ends the other threads when the coordinator stops."""
    return RunnerThread(False, target=self._stop_with, args=(coord,), daemon=daemon or None,
                        name="tf1ps: stop queue runner %s" % self._runner.name)

  def _work(self, op, tracked):
    ended, failed = False, False
    try:
      ended = self._enqueue(op, tracked)
    except Exception as error:
      failed = not self._is_stopping
      if failed:
        self._failures.record(error, self._runner.name)
        self._is_ending.set()
    with self._changed:
      self._busy -= 1
      self._changed.notify_all()
    if failed:
      self._wait_for_others()
    with self._changed:
      self._running -= 1
      last = self._running == 0
    if last and ended:
      self._check_at_end()
    if failed or last and not self._is_stopping:
      self._run_quietly(self._runner.close_op)
    if last:
      self.session = None  # so that it can be deleted

  def _enqueue(self, op, tracked):
    """Returns whether the input has ended; raises the error that ends the runner."""
    session, coord = self.session, self._coord
    kind = class_of(session)
    run = kind.make_callable(session, op if tracked is None else tracked.enqueue)
    ends = self._runner.queue_closed_exception_types + (tf.errors.CancelledError,)
    is_ending = self._is_ending.is_set
    while not (is_ending() or (coord is not None and coord.should_stop())):
      try:
        run()
      except ends:
        return True
      except tf.errors.OpError as error:
        if is_refused_run(error):
          continue
        if tracked is None or self._is_stopping or not (
            tracked.is_in(error) or tracked.may_be_in(error)):
          raise _with_hint(error) from None
        try:
          record_retry.retry(kind, session, tracked, error)
        except ends:
          return True
    return False

  def _wait_for_others(self):
    until = time.monotonic() + TIMING.runner_others_limit
    with self._changed:
      while self._busy and not self._is_stopping and time.monotonic() < until:
        self._changed.wait(until - time.monotonic())

  def _check_at_end(self):
    policy = input_of(self.session.graph).bad_records
    try:
      if policy.skipped and any(
          enqueue is not None and enqueue.counts for enqueue in self._runner.tracked):
        policy.check_at_end(record_retry.records_read(self.session, self._runner.tracked))
    except (bad_records.TooManyBadRecordsError, tf.errors.OpError) as error:
      self._failures.record(error, self._runner.name)

  def _stop_with(self, coord):
    """Waits until the coordinator stops, then ends the threads or leaves them behind."""
    coord.wait_for_stop()
    self._is_stopping = True
    self._is_ending.set()
    until = time.monotonic() + TIMING.runner_end_limit
    canceller = threading.Thread(target=self._run_quietly, args=(self._runner.cancel_op,),
                                 daemon=True, name="tf1ps: cancel %s" % self._runner.name)
    canceller.start()
    for thread in [canceller] + [thread for thread in self.threads if thread.is_alive()]:
      thread.join(max(0.0, until - time.monotonic()))
    session = self.session  # None if all threads have ended
    if isinstance(session, BoundedSession):
      # Its close waits for the threads that were left behind.
      session.close_limit = TIMING.generator_end_limit

  def _run_quietly(self, op):
    session = self.session
    if session is not None:
      run_quietly(class_of(session).run, session, op)


def _with_hint(error: tf.errors.OpError) -> tf.errors.OpError:
  """Adds advice to the error of an uninitialised counter of epochs."""
  # TensorFlow reports an uninitialised resource variable as not found.
  unset = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)
  if isinstance(error, unset) and "limit_epochs/epochs" in error_line(error):
    return type(error)(error.node_def, error.op, "%s: run tf.local_variables_initializer() before "
                       "queue runners start" % error_line(error))
  return error


def adopt_queue_runners(
  graph: Optional[tf.Graph] = None, collection: str = tf.GraphKeys.QUEUE_RUNNERS, track: bool = True
) -> List[tf.train.QueueRunner]:
  """Replaces each of TensorFlow's queue runners in a graph by a `Runner`; returns the runners.

  A runner of another class, such as a user's class, stays unchanged.

  Args:
    graph: the graph; None: the default graph.
    collection: the graph collection of the runners.
    track: whether to add the operations that keep the records of a run, so that an error names
      them; the graph must not be finalized.
  """
  graph = graph or tf.get_default_graph()
  runners = graph.get_collection_ref(collection)
  runners[:] = [Runner(runner) if type(runner) is tf.train.QueueRunner else runner
                for runner in runners]
  if track:
    for runner in runners:
      if isinstance(runner, Runner):
        runner.track()
  return list(runners)


def start_queue_runners(sess: Optional[tf.Session] = None,
                        coord: Optional[tf.train.Coordinator] = None, daemon: bool = True,
                        start: bool = True,
                        collection: str = tf.GraphKeys.QUEUE_RUNNERS) -> List[threading.Thread]:
  """Like `tf.train.start_queue_runners`, with the runners of this module; returns the threads.

  A run of the session raises the error of a runner, instead of the OutOfRangeError of the closed
  queue. For this, the function replaces `sess.run` and `sess.make_callable` of this session.

  Args:
    sess: the session; None: the default session.
    coord: a Coordinator, or None.
    daemon: whether the threads end with the process.
    start: whether to start them.
    collection: the graph collection of the runners.

  Raises:
    ValueError: there is no session.
    TypeError: `sess` is not a session.
    RuntimeError: eager execution is on.
  """
  if not tf.executing_eagerly():
    adopt_queue_runners(collection=collection, track=False)
  return tf.train.start_queue_runners(sess, coord, daemon, start, collection)
