"""The threads of one queue runner in one session.

Each runs an enqueue operation over and over, in the order of `Group.work`:

1. It enqueues, until its input has ended, its queue was closed, or the coordinator stops.
2. At an error, what the run had read is tried again in parts (record_retry.py); then the run is
   made again, or the thread has failed.
3. A thread that has failed records why, and has the others of the runner finish what they have
   read: an earlier record may be among it.
4. It closes the queue, and cancels nothing. Where none fails the last thread does.

When the coordinator stops (`Group.stop_with`) the queue is closed and what waits to be enqueued is
cancelled. A thread that does not hear of it, since it is in Python or reads slowly, is left behind.
"""

from __future__ import annotations

import threading
import time

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession
from tf1ps.compat import TIMING, error_line, is_refused_run
from tf1ps.pipeline import bad_records, record_retry
from tf1ps.pipeline.graph_input import input_of


class RunnerThread(threading.Thread):
  """A thread of a queue runner; nobody needs to wait for it.

  Attributes:
    enqueues: False for the one that ends the others when the coordinator stops.
  """

  enqueues = True


class Group:
  """The threads of one runner in one session."""

  def __init__(self, runner, session, coord, failures):
    self.session = session
    self.threads = []
    self._runner = runner
    self._coord = coord
    self._failures = failures
    self._left = self._busy = len(runner.enqueue_ops)  # threads; those that still enqueue
    self._leaving = threading.Event()  # a thread has failed, or the coordinator stops
    self._is_stopping = False
    self._changed = threading.Condition()

  @property
  def is_running(self) -> bool:
    return self._left > 0

  def make_threads(self, ops, copies, daemon: bool):
    """Makes a thread for each enqueue operation and its copy, or None."""
    self.threads = [
      RunnerThread(target=self.work, args=pair, daemon=daemon or None,
                   name="tf1ps: queue runner %s" % pair[0].name) for pair in zip(ops, copies)]
    return list(self.threads)

  def make_stopper(self, coord, daemon: bool):
    """Makes the thread that ends the others when the coordinator stops."""
    stopper = RunnerThread(target=self.stop_with, args=(coord,), daemon=daemon or None,
                           name="tf1ps: stop queue runner %s" % self._runner.name)
    stopper.enqueues = False
    return stopper

  def work(self, op, copy):
    """A thread's life."""
    ended, failed = False, False
    try:
      ended = self._enqueue(op, copy)
    except Exception as error:
      failed = not self._is_stopping
      if failed:
        self._failures.record(error, self._runner.name)
        self._leaving.set()
    with self._changed:
      self._busy -= 1
      self._changed.notify_all()
    if failed:
      self._wait_for_others()
    with self._changed:
      self._left -= 1
      last = self._left == 0
    if last and ended:
      self._check_at_end()
    if failed or last and not self._is_stopping:
      self._run_quietly(self._runner.close_op)
    if last:
      self.session = None  # it may go

  def _enqueue(self, op, copy):
    """Returns whether there is nothing left to enqueue; raises what ends the runner."""
    session, coord = self.session, self._coord
    kind = class_of(session)
    run = kind.make_callable(session, op if copy is None else copy.enqueue)
    ends = self._runner.queue_closed_exception_types + (tf.errors.CancelledError,)
    leaving = self._leaving.is_set
    while not (leaving() or (coord is not None and coord.should_stop())):
      try:
        run()
      except ends:
        return True
      except tf.errors.OpError as error:
        if is_refused_run(error):
          continue
        if copy is None or self._is_stopping or not (
            copy.is_in(error) or copy.may_be_in(error)):
          raise hint(error) from None
        try:
          record_retry.retry(kind, session, copy, error)
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
      if policy.skipped and any(copy is not None and copy.counts for copy in self._runner.copies):
        policy.check_at_end(record_retry.records_read(self.session, self._runner.copies))
    except (bad_records.TooManyBadRecordsError, tf.errors.OpError) as error:
      self._failures.record(error, self._runner.name)

  def stop_with(self, coord):
    """Waits until the coordinator stops, then ends the threads or leaves them behind."""
    coord.wait_for_stop()
    self._is_stopping = True
    self._leaving.set()
    until = time.monotonic() + TIMING.runner_end_limit
    canceller = threading.Thread(target=self._run_quietly, args=(self._runner.cancel_op,),
                                 daemon=True, name="tf1ps: cancel %s" % self._runner.name)
    canceller.start()
    for thread in [canceller] + [thread for thread in self.threads if thread.is_alive()]:
      thread.join(max(0.0, until - time.monotonic()))
    session = self.session
    if isinstance(session, BoundedSession):  # None by now, where all have ended
      session.close_limit = TIMING.generator_end_limit  # its close would wait for them

  def _run_quietly(self, op):
    session = self.session
    if session is None:
      return
    try:
      class_of(session).run(session, op)
    except Exception:  # the session has been closed, or its server has gone
      pass


def class_of(session):
  """The class whose `run` is TensorFlow's: the object may have another, which explains errors."""
  return tf.Session if isinstance(session, tf.Session) else type(session)


def hint(error: tf.errors.OpError) -> tf.errors.OpError:
  """Says what to do about an uninitialised counter of epochs."""
  # A resource variable that was not initialised is not found.
  unset = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)
  if isinstance(error, unset) and "limit_epochs/epochs" in error.message:
    return type(error)(error.node_def, error.op, "%s: run tf.local_variables_initializer() before "
                       "queue runners start" % error_line(error))
  return error
