"""A worker as the coordinator sees it: its graph, its session, the thread that runs steps on it.

The sessions' master is the server of the coordinator's own process. So the loss of a worker quickly
becomes an error, and disturbs no session of another worker. After a loss the thread waits until the
worker's server answers, opens a new session, and initialises the worker's own state (iterators,
local variables, tables) again.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  BoundedSession,
  LimitExceeded,
  ProbeResult,
  Task,
  TaskUnavailableError,
  call_within,
  probe_task,
)
from tf1ps.compat import LOST_STATE_ERRORS, RETRIES, TIMING, error_line
from tf1ps.coordinator.functions import Builder, Kept, Signature
from tf1ps.coordinator.steps import RemoteValue, StepError, StepQueue, cancelled
from tf1ps.pipeline import iterator_initializers
from tf1ps.transfer import RunLength

_log = logging.getLogger("tf1ps")
LOSSES = RETRIES.scheduled_step.errors


class WorkerThread:
  """Runs steps on one worker, one after the other.

  Attributes:
    task: the worker.
    completed: the number of steps that it has completed.
    sessions: the number of sessions opened on it; each session after the first follows a loss.
    missing: since when its server has not answered, and the last probe; None: the server answered.
  """

  def __init__(self, task: Task, builder: Builder, target: str, config: tf.ConfigProto,
               queue: StepQueue, list_signatures: Callable[[], List[Signature]],
               await_state: Callable[[Callable[[], bool]], Optional[int]], open_timeout: float,
               steps_per_execution: Optional[int] = 1):
    """Prepares; `start` starts the thread.

    Args:
      task: the worker.
      builder: builds functions in the graph of this worker.
      target: the target of this process's server.
      config: the config of the sessions, with filters that show only this worker, the coordinator
        and the ps.
      queue: the queue that the steps come from.
      list_signatures: returns all functions that have been scheduled, in their order.
      await_state: waits until the ps have whole state, or until its argument returns True. Returns
        the number of sessions that the coordinator has had for that state, or None.
      open_timeout: seconds that the creation of a session may take.
      steps_per_execution: the number of steps that one run makes, if so many wait; None: the
        fastest number, measured for each function.
    """
    self.task = task
    self.completed = self.sessions = 0
    self.missing: Optional[Tuple[float, ProbeResult]] = None
    self._builder, self._target, self._config = builder, target, config
    self._queue, self._list_signatures, self._await_state = queue, list_signatures, await_state
    self._open_timeout, self._at_once = open_timeout, steps_per_execution
    self._session: Optional[BoundedSession] = None
    # The run length of each function whose steps may share a run.
    self._lengths: Dict[Any, RunLength] = {}
    self._callables = {}
    self._prepared = 0  # the number of functions that the graph has
    self._initialised: Set[str] = set()  # the names of the initialisers that have run
    self._kept: Optional[Kept] = None  # of any function, because all functions share one store
    self._state = self._incarnation = None
    self._since: Optional[float] = None  # when the current step began
    self._run_of_several = None  # the Unrolled of the current run, and its feeds
    self._closing = threading.Event()
    self._thread = threading.Thread(
      target=self._work, daemon=True, name="tf1ps: steps of %s" % task.name)

  def start(self) -> None:
    """Starts the thread."""
    self._thread.start()

  def stop(self, limit: float) -> None:
    """Ends the thread after its current step; aborts that step after `limit` seconds."""
    self._closing.set()
    self._thread.join(limit)
    session = self._session
    if self._thread.is_alive() and session is not None:
      session.abort(lambda: tf.errors.CancelledError(None, None, "the coordinator has ended"))
      self._thread.join(TIMING.thread_end_limit)

  def check(self) -> None:
    """Aborts a long step if the worker does not answer, or has been restarted.

    TensorFlow may keep a call to a lost worker open until another worker listens at its address.
    """
    session, since = self._session, self._since
    if session is None or since is None or (
        time.monotonic() - since < TIMING.lost_check_interval):
      return
    probe = probe_task(self.task)
    if probe.is_up and probe.incarnation == self._incarnation:
      return
    status = "it was started anew" if probe.is_up else probe.detail
    text = "%s ran a step and is gone: %s" % (self.task.name, status)
    session.abort(lambda: tf.errors.UnavailableError(None, None, text))

  def _work(self):
    try:
      while not self._closing.is_set():
        if self._session is None and not self._open():
          continue
        steps = self._queue.take(TIMING.poll_interval, self._find_most)
        if steps:
          self._run(steps)
    except Exception as error:  # the queue tells the program, because no code joins this thread
      self._queue.fail(error)
    finally:
      self._close()

  # The session.

  def _open(self) -> bool:
    if not self._list_signatures():
      self._closing.wait(TIMING.poll_interval)
      return False
    probe = probe_task(self.task)
    if not probe.is_up:
      self.missing = (self.missing[0] if self.missing else time.monotonic(), probe)
      self._closing.wait(TIMING.poll_interval)
      return False
    self.missing = None
    state = self._await_state(self._closing.is_set)
    if state is None:
      return False
    try:
      self._build()
      self._session = BoundedSession(self._target, self._builder.graph, self._config,
                                     TIMING.run_session_close_limit)
      call_within(self._open_timeout, "creating a session on %s" % self.task.name,
                  self._initialise, self._session)
    except (LOSSES + LOST_STATE_ERRORS + (LimitExceeded,)) as error:
      _log.warning("%s has no session yet: %s", self.task.name, error_line(error))
      self._close()
      self._closing.wait(next(RETRIES.scheduled_step.pauses()))
      return False
    self._state, self._incarnation = state, probe.incarnation
    for length in self._lengths.values():
      length.restart()
    self.sessions += 1
    if self.sessions > 1:
      _log.warning("%s takes steps again", self.task.name)
    return True

  def _build(self):
    signatures = self._list_signatures()
    for signature in signatures:
      self._builder.build(signature)
    self._prepared = len(signatures)

  def _prepare(self):
    """Builds the functions added since the last call, in the same order as on all workers."""
    if len(self._list_signatures()) > self._prepared:
      self._build()
      self._initialise(self._session)

  def _initialise(self, session):
    """Initialises the parts of the worker's own state that this session has not initialised."""
    graph = self._builder.graph
    stages = [
      [each.initializer for each in graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)],
      graph.get_collection(tf.GraphKeys.TABLE_INITIALIZERS), iterator_initializers(graph)]
    for stage in stages:
      new = [each for each in stage if each.name not in self._initialised]
      session.run(new)
      self._initialised.update(each.name for each in new)

  def _close(self):
    session, self._session = self._session, None
    self._callables.clear()
    self._initialised.clear()
    if session is not None:
      if self._kept is not None and self._closing.is_set():
        self._forget_results(session)
      self._kept = None
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
      session.close()

  def _forget_results(self, session):
    """Frees the memory of results that were not fetched: the worker may continue to serve."""
    try:
      call_within(TIMING.leave_limit, "forgetting results", session.run, self._kept.clear)
    except LOSSES + (LimitExceeded,):
      pass  # The worker has ended, which frees its memory.

  # Steps.

  def _length_of(self, step: RemoteValue) -> Optional[RunLength]:
    """Returns the run length of a step's function; None if each step needs a separate run."""
    signature, builder = step.function, self._builder
    if step.stays or signature.is_fed:  # all steps of a run would get the same feeds
      return None
    if signature.key not in self._lengths:
      self._lengths[signature.key] = RunLength(
        lambda: builder.count_ops(signature), steps=self._at_once)
    return self._lengths[signature.key]

  def _find_most(self, step: RemoteValue) -> int:
    """Returns the number of steps in a run that begins with this step."""
    length = self._length_of(step)
    return 1 if length is None else length.steps

  def _note_time(self, step: RemoteValue, seconds: float, steps: int):
    """Notes the time of a run; builds copies of the step if a run should have several steps."""
    length, signature = self._length_of(step), step.function
    if length is None or length.is_final:
      return
    before = length.steps
    length.note(seconds, steps)
    if length.steps > before:
      try:
        self._builder.build_unrolled(signature, length.steps)
      except ValueError as error:
        length.refuse()
        _log.debug("each run of %s makes one step: %s", signature.name, error)
    if length.finding:
      _log.debug("%s on %s: %s", signature.name, self.task.name, length.finding)

  def _run(self, steps: List[RemoteValue]):
    results = None
    self._since = time.monotonic()
    try:
      if len(steps) > 1:
        results = [(values, None) for values in self._call_unrolled(steps)]
      else:
        take = self._call_and_keep(steps[0]) if steps[0].stays else None
        results = [(None if take else self._call(steps[0]), take)]
    except LOSSES as error:
      self._lose(steps, error)
    except LOST_STATE_ERRORS as error:  # an error of the program, unless a ps has lost its state
      # The coordinator's session may notice the lost state of a ps a moment later than this step.
      if self._await_state(self._closing.is_set) != self._state:
        self._lose(steps, error)
      else:
        self._fail(steps, error)
    except Exception as error:
      self._fail(steps, error)
    else:
      seconds = time.monotonic() - self._since
      self.completed += len(steps)
      for step, (values, take) in zip(steps, results):
        self._queue.finish(step, values, take)
      self._note_time(steps[0], seconds, len(steps))
    finally:
      self._since = self._run_of_several = None

  def _call_unrolled(self, steps):
    """Runs steps of the same function in one run; returns their results."""
    self._prepare()
    signature = steps[0].function
    built = self._builder.build(signature)
    unrolled = self._builder.build_unrolled(signature, len(steps))
    feed = unrolled.feed()
    self._run_of_several = unrolled, feed
    values = self._session.run([unrolled.fetches, unrolled.train_ops], feed)[0]
    return [built.pack(each) for each in values]

  def _call(self, step):
    signature = step.function
    call = self._callables.get(signature.key)
    if call is None:
      self._prepare()
      built = self._builder.build(signature)
      run = self._session.make_callable(built.fetches, feed_list=built.placeholders)
      call = self._callables[signature.key] = (run, built.pack)
    run, pack = call
    return pack(run(*step.arguments))

  def _call_and_keep(self, step):
    """Runs a step whose result stays on the worker; returns the function that fetches the result.

    A step without a result returns None.
    """
    self._prepare()
    built = self._builder.build(step.function)
    if not any(isinstance(each, tf.Tensor) for each in built.fetches):
      return None
    kept = self._builder.build_kept(step.function)
    self._kept = kept
    feeds = dict(zip(built.placeholders, step.arguments))
    session, name, number = self._session, self.task.name, step.number
    session.run(kept.put, {**feeds, kept.number: number})

    def take():
      try:
        return built.pack(session.run(kept.take, {kept.number: number}))
      except Exception as error:
        raise StepError(number, "the result of step %d was lost with %s, where it stayed: schedule "
                        "the step again" % (number, name)) from error

    return take

  def _count_done(self):
    """Returns the number of steps that a run of several steps made before its error."""
    if self._run_of_several is None or self._session is None:
      return 0
    unrolled, feed = self._run_of_several
    try:
      return call_within(TIMING.leave_limit, "counting the steps of a run", unrolled.done,
                         self._session, feed).steps
    except LOSSES + (LimitExceeded,):
      return 0

  def _lose(self, steps, error):
    _log.warning("%s is lost at step %d: %s", self.task.name, steps[0].number, error_line(error))
    self._close()
    for step in reversed(steps):  # each step goes to the head of the queue
      step.losses += 1
      if step.losses == RETRIES.scheduled_step.tries:
        self._fail([step], error)
      else:
        self._queue.give_back(step)

  def _fail(self, steps, error):
    done = self._count_done()
    step = steps[done]
    text = "step %d (%s) failed on %s: %s: %s" % (
      step.number, step.function.name, self.task.name, type(error).__name__, error_line(error))
    tries = RETRIES.scheduled_step.tries
    if step.losses == tries:
      text += ". It was lost %d times with its worker: does it end the process?" % tries
    if isinstance(error, tf.errors.OutOfRangeError):
      text += ". Has the per-worker dataset ended? repeat() it, or schedule ranges of the data"
    failure = StepError(step.number, text)
    failure.__cause__ = error
    self._queue.fail(failure, step)
    for number, other in enumerate(steps):
      if number < done:
        self.completed += 1
        self._queue.fail(StepError(other.number, "step %d ran, but its result was lost, because "
                                   "step %d of the same run failed" % (
                                     other.number, step.number)), other)
      elif number > done:
        self._queue.fail(cancelled(other, failure), other)


class WorkerWatch:
  """A thread that looks for steps on lost workers, and for steps that no worker can take."""

  def __init__(self, workers: List[WorkerThread], queue: StepQueue, limit: float):
    """Prepares; while no worker answers, steps may wait for `limit` seconds."""
    self._workers, self._queue, self._limit = workers, queue, limit
    self._closing = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: watch of workers")

  def start(self) -> None:
    self._thread.start()

  def stop(self) -> None:
    self._closing.set()
    self._thread.join(TIMING.probe_limit)

  def _watch(self):
    while not self._closing.wait(min(TIMING.lost_check_interval, self._limit) / 2):
      for worker in self._workers:
        worker.check()
      self._check_for_any()

  def _check_for_any(self):
    missing = [worker.missing for worker in self._workers if worker.missing]
    if len(missing) < len(self._workers) or self._queue.is_empty():
      return
    waited = time.monotonic() - max(since for since, _ in missing)
    if waited > self._limit:
      self._queue.fail(TaskUnavailableError(
        [probe for _, probe in missing], waited, "steps wait, and no worker answers"))
