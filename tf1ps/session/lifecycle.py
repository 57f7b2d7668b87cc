"""The lifecycle of a training session: its creation, its steps, its end.

`MonitoredSession` is the session that a training loop runs in. Its hooks know it as a
`SessionLifecycle`. In order:

at the start    the hooks join, the signal watch and the heartbeat begin, a session is created
at each step    the last hook counts the step into the heartbeat, and ends the loop after a signal
at a signal     the loop has two seconds to end; then the chief saves from a separate session, and
                the blocked run is aborted
at a signal to  the chief saves from a separate session while its steps continue; if the task is a
another task    ps, it ends after the save
at the end      the hooks leave; the chief waits for the other workers, saves the last checkpoint,
                and releases the ps; each other worker reports its end
"""

from __future__ import annotations

import logging
import threading
from typing import List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointError, CheckpointSaver, GlobalStepTracker
from tf1ps.cluster import (
  BoundedSession,
  LifecycleHook,
  RecoverableSession,
  SignalWatch,
  call_within,
  probe_tasks,
  without_placement_log,
)
from tf1ps.compat import GRACE, TIMING, error_line, signal_exit_code
from tf1ps.graph import check_constants, check_tensors, says_building
from tf1ps.replication import ReplicaLostError
from tf1ps.session import ending, initialise, presence, process_end, run_directory
from tf1ps.session import membership as membership_lib
from tf1ps.session.settings import SessionSettings
from tf1ps.session.summaries import EventFile, flush_summaries

_log = logging.getLogger("tf1ps")
_CLEAN_ENDS = (tf.errors.OutOfRangeError, StopIteration)


class SessionLifecycle:
  """The membership, signals and end of a training session.

  Attributes:
    membership: this task's membership of the run, or None for an unknown cluster.
    tracker: the tracker of the global step.
    settings: the purpose and the limits of the session.
    problems: a sentence for each other worker that did not do its part.
  """

  def __init__(self, membership: Optional[membership_lib.Membership], tracker: GlobalStepTracker,
               settings: SessionSettings, saver: Optional[CheckpointSaver] = None,
               events: Optional[EventFile] = None):
    """Prepares; `enter` begins to watch signals.

    Args:
      membership, tracker, settings: see the attributes.
      saver: the chief's hook that saves checkpoints, or None.
      events: the event file, or None.
    """
    self.membership, self.tracker, self.settings = membership, tracker, settings
    self.problems: List[str] = []
    self._saver, self._events = saver, events
    self._creator = None
    self._closing = threading.Event()
    grace = GRACE if membership is None else membership.record.grace
    self._exit_limit = min(TIMING.force_exit_limit, grace)
    # A save gets the rest of the grace: the exit limit covers the probe of the ps and the report.
    self._extension = grace - self._exit_limit
    self._signals = SignalWatch(self._on_signal, self._exit_limit)
    self._ended = False
    tracker.add_listener(self._note_global_step)

  @property
  def is_chief(self) -> bool:
    """Whether this task is the chief of a run."""
    return self.membership is not None and self.membership.is_chief

  @property
  def writes_graph(self) -> bool:
    """Whether the session writes the definition of its graph."""
    return self._saver is not None or self._events is not None

  @property
  def signum(self) -> Optional[int]:
    """The signal that ends the session, or None."""
    return self._signals.signum

  @property
  def session(self) -> Optional[BoundedSession]:
    """The current session; a recovery replaces it."""
    return self._creator.session if self._creator is not None else None

  @property
  def sessions(self) -> int:
    """How many sessions were created; all after the first are recoveries."""
    return self._creator.sessions

  def last_save(self):
    """Returns the `checkpoint.LastSave` of a chief that saves, else None; for any thread."""
    return None if self._saver is None else self._saver.last_save()

  def save_again(self) -> None:
    """Makes the last save happen even if a checkpoint of the same global step exists."""
    if self._saver is not None:
      self._saver.saved_step = None

  def enter(self, creator) -> None:
    """Begins to watch signals; `creator` creates the sessions.

    Raises DirectoryInUseError if another session of this process saves into its directory.
    """
    self._creator = creator
    if self.is_chief:
      self.membership.claim_directory()
      self.membership.watch.on_leaving(self._on_leaving)
    self._signals.__enter__()

  def prepare(self) -> None:
    """Raises CheckpointError before any work if the chief cannot save."""
    if self._saver is not None:
      self._saver.prepare()

  def interrupted(self) -> None:
    """Raises SystemExit after a signal; for the waits in Python."""
    if self.signum is not None:
      self._closing.set()
      raise SystemExit(signal_exit_code(self.signum))

  def count(self) -> None:
    """Puts this task's steps and examples into the heartbeat."""
    if self.membership is not None:
      self.membership.heartbeat.set(
        step=self.tracker.own_steps, examples=self.settings.count_examples())

  def _note_global_step(self, step: int, own_steps: int) -> None:
    if self.membership is not None:
      self.membership.heartbeat.set(global_step=step)

  # The end.

  def before_close(self, call_inside) -> None:
    """The chief waits for the other workers, and recovers its session during the wait.

    Workers that end by a vote stay until the last checkpoint is saved. If the chief is killed
    before that save, the chief's next process needs these workers for each step.
    """
    if self.is_chief and self.signum is None and (
        self.settings.ends_job and self.settings.awaits_workers):
      if self.settings.ends_by_vote is not None:
        self.save_last(call_inside)
        self.membership.note_saved(self.settings.ends_by_vote())
      self._wait_for_workers(call_inside)
    self._closing.set()
    if self._saver is not None and self._can_save():
      self._signals.extend(self._extension)

  def _can_save(self) -> bool:
    """Whether the variables can be saved: a save from a stopped ps would delay the end."""
    return self.membership is None or all(result.is_up for result in probe_tasks(
      self.membership.state_tasks, timeout=TIMING.watch_probe_limit))

  def _wait_for_workers(self, call_inside):
    def each_round():
      self.interrupted()
      if self.session is not None and self.session.is_aborted:
        # A ps was restarted. The other workers wait until this chief restores the ps's variables.
        call_inside(self.tracker.ask)

    try:
      self.problems = ending.wait_for_workers(
        self.membership, self.settings.end_timeout, each_round, self.settings.expects_all)
    except SystemExit:
      return  # After a signal the chief saves without a wait.
    for problem in self.problems:
      _log.error("%s", problem)

  def save_last(self, call_inside) -> None:
    """The chief saves the last checkpoint; after the loss of a ps it recovers and saves again."""
    if self._saver is not None and self.session is not None:
      call_inside(self._saver.save_last)

  def hold_close(self) -> None:
    """Delays TensorFlow's close of the session until the end of this task's membership."""
    session = self.session
    if self.membership is not None and session is not None:
      session.hold_close()
      self.membership.at_stop(session.finish_close)

  def after_close(self, error: Optional[BaseException]) -> None:
    """Reports this task's end; raises the error that decides the exit code."""
    if self._ended:
      return
    self._ended = True
    self._closing.set()
    signum = self.signum
    try:
      self._flush_summaries()
      if self.membership is not None:
        self._report(error, signum)
    finally:
      self._signals.stop()
      if self.membership is not None:
        self.membership.give_directory_back()
    if signum is not None and isinstance(error, CheckpointError):
      _log.error("the last state was not saved: %s", error)
    if signum is not None and not isinstance(error, SystemExit):
      raise SystemExit(signal_exit_code(signum))
    if self.problems and error is None and self.settings.releases:
      raise ending.JobFailedError(self.problems)

  def _flush_summaries(self):
    # TensorFlow calls no hook after an error, but the last summaries may show its cause.
    if self._events is not None and self.sessions:
      flush_summaries(self._events)

  def _report(self, error, signum):
    membership = self.membership
    membership.at_loss(None)
    if isinstance(error, run_directory.PartDoneError):
      membership.repeat_report()
      membership.stop()
      return
    self.count()
    if signum is not None:
      ending.report_signal(membership, signum)
    elif error is not None:
      reason = ending.report_error(membership, error)
      if self.is_chief and isinstance(error, tf.train.NanLossDuringTrainingError):
        membership.release(failed=True, reason=reason)  # no worker can train on from NaNs
    elif not self.settings.ends_job:
      presence.hand_back(membership, self._save_later_steps, self.settings.expects_all)
      return
    elif self.settings.releases or not self.is_chief:
      ending.report_part(membership, self.problems)
    if self.settings.releases:
      membership.stop()

  # Signals.

  def _on_signal(self, signum):
    _log.warning("signal %d: leaving", signum)
    if self._closing.wait(min(TIMING.leave_limit, self._exit_limit / 2)):
      return
    session = self.session
    if session is None:
      return
    if self._saver is not None and not self._creator.is_creating and self._can_save():
      self._signals.extend(self._extension)
      self._save_aside(session, self._extension + 1.0)
    if not self._closing.is_set():
      session.abort(lambda: SystemExit(signal_exit_code(signum)))

  def _on_leaving(self, tokens, names):
    """A signal ends other tasks: the chief saves in a thread, and training goes on."""
    _log.warning("%s: ended by a signal; the chief saves", names)
    threading.Thread(
      target=self._save_for_leaving, args=(tokens,), daemon=True, name="tf1ps: save").start()

  def _save_for_leaving(self, tokens):
    session = self.session
    if self._saver is not None and session is not None and not (
        self._ended or self._creator.is_creating or session.is_aborted):
      self._save_aside(session)
    self.membership.watch.answer_leaving(tokens)

  def save_after_loss(self) -> None:
    """Saves in the chief of a synchronous job that has lost a replica: the variables are whole."""
    if self._saver is not None and self.session is not None and self._can_save():
      self._save_aside(self.session)

  def _save_later_steps(self):
    """Saves the other workers' later steps; to TensorFlow, this session is still open."""
    if self._saver is not None and self._can_save():
      self._save_aside(self.session)

  def _save_aside(self, session, limit: float = TIMING.save_limit):
    """Saves from a separate session while the main session is blocked, busy or aborted."""
    aside = BoundedSession(
      session.sess_str, session.graph, without_placement_log(self._creator.config))
    try:
      call_within(limit, "saving the last state", self._save_whole, aside)
    except Exception as error:  # after any error, the task must still leave
      _log.error("the last state was not saved: %s", error_line(error))
    finally:
      aside.close()

  def _save_whole(self, session):
    if initialise.has_partial_update(session):
      raise RuntimeError("an update was interrupted")
    step = self.tracker.ask(session)
    if step != self._saver.saved_step:
      self._saver.save(session, step)


class _LastHook(tf.train.SessionRunHook):
  """The last hook, which runs after every other hook has seen the session and the step."""

  def __init__(self, lifecycle: SessionLifecycle, creator):
    self._lifecycle, self._creator = lifecycle, creator

  def after_create_session(self, session, coord):
    self._creator.end_creation()

  def after_run(self, run_context, run_values):
    self._lifecycle.count()
    if self._lifecycle.signum is not None and self._lifecycle.settings.ends_by_vote is None:
      run_context.request_stop()


class MonitoredSession(tf.train.MonitoredSession, RecoverableSession, process_end.Endable):
  """A `tf.train.MonitoredSession` that ends within a limit, and that reports how it ended.

  A session that the program leaves open ends with the process (process_end.py).

  Attributes:
    lifecycle: the session's `SessionLifecycle`.
  """

  def __init__(self, lifecycle: SessionLifecycle, creator,
               hooks: Sequence[tf.train.SessionRunHook]):
    """Creates the session; use `MonitoredTrainingSession`."""
    graph, membership = tf.get_default_graph(), lifecycle.membership
    if lifecycle.writes_graph:
      check_constants(graph)
    check_tensors(graph, "" if membership is None else membership.cluster.task.name)
    self.lifecycle = lifecycle
    self._creator = creator
    self._has_left = False
    self._lifecycle_hooks = [hook for hook in hooks if isinstance(hook, LifecycleHook)]
    for hook in self._lifecycle_hooks:
      hook.on_join(lifecycle)
    lifecycle.enter(creator)
    try:
      if lifecycle.membership is not None:
        presence.take_over(lifecycle.membership.record.target)
        lifecycle.membership.start()
      lifecycle.prepare()
      with says_building(graph):  # the hooks and the scaffold add operations
        super().__init__(creator, [*hooks, _LastHook(lifecycle, creator)],
                         lifecycle.settings.stop_grace_period_secs)
    except BaseException as error:
      if creator.session is not None:
        creator.session.close()
      lifecycle.after_close(error)
      raise
    process_end.register(self)

  def __exit__(self, exception_type, exception_value, traceback):
    def close_as_tensorflow(kind, error):
      return lambda: super(MonitoredSession, self).__exit__(kind, error, traceback)

    if isinstance(exception_value, _CLEAN_ENDS) and self._creator.is_creating:
      raised = initialise.SessionCreationError("creating the session: %s" % exception_value)
      self._leave(raised, close_as_tensorflow(type(raised), raised))
      raise raised from exception_value
    is_clean = exception_type is None or issubclass(exception_type, _CLEAN_ENDS)
    if is_clean:
      self._finish_steps(close_as_tensorflow)
    return self._leave(None if is_clean else exception_value,
                       close_as_tensorflow(exception_type, exception_value))

  def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
    """Like `tf.train.MonitoredSession.run`; at the end of the data a hook may supply more data."""
    while True:
      try:
        return super().run(fetches, feed_dict, options, run_metadata)
      except tf.errors.OutOfRangeError as error:
        for hook in self._lifecycle_hooks:
          hook.on_end_of_data(self, error)
        if not any(hook.begin_next_pass(self, error) for hook in self._lifecycle_hooks):
          raise

  def close(self):
    """Closes the session; the chief waits for the others, saves, and releases the ps."""
    self._finish_steps(lambda kind, error: super(MonitoredSession, self).close)
    self._leave(None, super().close)

  def end_with_process(self, error):
    self.__exit__(None if error is None else type(error), error, None)

  def save_last(self) -> None:
    """Saves the steps since the chief's last checkpoint; the session stays open."""
    self.lifecycle.save_last(self.call_inside)

  def leave_after_signal(self) -> None:
    """After a signal the chief saves, and SystemExit is raised; else nothing happens."""
    if self.lifecycle.signum is not None:
      self.lifecycle.before_close(self.call_inside)
      self.lifecycle.save_last(self.call_inside)
      self.lifecycle.interrupted()

  def call_inside(self, function):
    return self.run_step_fn(lambda step_context: function(self._creator.session))

  def _finish_steps(self, closing):
    """Ends the steps beside the loop; `closing(type, error)` returns the closing function."""
    if self._has_left:
      return
    try:
      for hook in self._lifecycle_hooks:
        hook.finish_steps(self)
    except BaseException as error:
      self._leave(error, closing(type(error), error))
      raise

  def _leave(self, error, close):
    if self._has_left:
      return None
    self._has_left = True
    process_end.forget(self)
    try:
      if error is None:
        finished = self.lifecycle.signum is None
        self._call_hooks(lambda hook, session: hook.leave(session, finished))
        self.lifecycle.before_close(self.call_inside)
        if self.lifecycle.is_chief and self.lifecycle.signum is None:
          self._call_hooks(lambda hook, session: hook.end_all(session))
        self.lifecycle.save_last(self.call_inside)
      elif isinstance(error, ReplicaLostError):
        self.lifecycle.save_after_loss()
      self.lifecycle.hold_close()
      result = close()
    except BaseException as problem:
      self.lifecycle.after_close(problem)
      raise
    self.lifecycle.after_close(error)
    return result

  def _call_hooks(self, call):
    if self._lifecycle_hooks and self._creator.session is not None:
      try:
        self.call_inside(lambda session: [call(hook, session) for hook in self._lifecycle_hooks])
      except (tf.errors.OpError, RuntimeError) as error:
        if self._creator.session is None:
          raise  # the recovery has failed, so no session is left for a clean end
        _log.warning("at the end of training: %s", error)
