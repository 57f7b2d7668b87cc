"""Creates training sessions: within limits, and only on a cluster that is ready.

`SessionCreator` creates the session of a MonitoredSession, at the start and after each failure. A
`PlainSessionCreator` knows no cluster. A `RunSessionCreator`, for a known cluster, does this:

1. It probes the tasks that the graph uses until all are up: within `start_timeout` the first time,
   within `heartbeat_timeout` afterwards.
2. The first time, it checks each ps's version of TensorFlow, compares each ps's description of the
   cluster, and checks the path to each ps and back.
3. The chief keeps the live state if the state is whole and belongs to this run. Else the chief
   marks the run as not initialised, clears the state of other runs, restores the last checkpoint or
   initialises the variables, and marks the run as initialised. The other workers wait for this
   mark, and compare their graph with the chief's.
   Mirrored variables are restored after each loss (mirrored_sessions.py).
4. It initialises local variables and iterators. A local_init_op may wait for all workers. So the
   chief runs its local_init_op after the mark. The other workers run theirs after the mark, too,
   and begin to train when the chief's local_init_op has also ended.
5. A watch ends the runs of the session: with AbortedError when a ps was restarted or the container
   of the job was reset, so that the MonitoredSession creates a new session; with TaskLostError when
   a task is silent for too long.

After an AbortedError or UnavailableError the creator tries again, as the table of retries says. It
turns an OutOfRangeError, which a MonitoredSession would interpret as the end of the data, into a
SessionCreationError.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Callable, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker, global_step_of_checkpoint, latest_checkpoint
from tf1ps.cluster import (
  BoundedSession,
  LifecycleHook,
  TaskUnavailableError,
  TaskWatch,
  VersionError,
  call_within,
  check_paths,
  check_versions,
  filters_show_task,
  make_device_filters,
  make_session_config,
  wait_for_tasks,
)
from tf1ps.compat import RETRIES, TIMING, error_line
from tf1ps.pipeline import explain_input_error
from tf1ps.replication import clear_ops, explain_round_error, partial_updates
from tf1ps.session import initialise, mirrored_sessions, other_tasks, unplaced
from tf1ps.session import membership as membership_lib
from tf1ps.session import signature as signature_lib
from tf1ps.session.ending import TaskLostError
from tf1ps.session.lost_state import restore_lost
from tf1ps.session.run_directory import PartDoneError
from tf1ps.session.settings import LOST_ONLY, SessionSettings
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")
_WORTH_A_TRY = RETRIES.session.errors + (ControlError,)
_SILENCE = 30.0  # seconds until a task of an unknown cluster is lost


class SessionCreator(tf.train.SessionCreator):
  """Creates sessions, at the start and after each failure, and tries again within a limit.

  A subclass defines `_plan`, called once; `_limit` and `_say_limit`; and `_try`, which opens
  `self.session` and returns it ready for use.

  Attributes:
    config: the session config.
    session: the current session, or None.
    sessions: how many sessions were created; all after the first are recoveries.
    is_creating: whether a session is being created, or a hook has yet to see it.
  """

  _retry, _worth_a_try = RETRIES.session, _WORTH_A_TRY

  def __init__(self, settings: SessionSettings, interrupted: Callable[[], None] = lambda: None):
    """Creates the creator.

    Args:
      settings: the purpose and the limits of the session; the first session finalises the scaffold.
      interrupted: called in each wait; raises when the wait must end (after a signal).
    """
    self._settings, self._interrupted = settings, interrupted
    self._scaffold, self.config = settings.scaffold, settings.config
    self._graph: Optional[tf.Graph] = None
    self.session: Optional[BoundedSession] = None
    self.sessions = 0
    self.is_creating = False

  def end_creation(self) -> None:
    """Notes that every hook has received the session."""
    self.is_creating = False

  def create_session(self):
    """Creates a session; raises the errors in the module's docstring."""
    if self._graph is None:
      initialise.finalize(self._scaffold)
      self._graph = tf.get_default_graph()
      self._plan()
    first = self.sessions == 0
    limit = self._limit(first)
    pauses, deadline = self._retry.pauses(), time.monotonic() + limit
    self.is_creating = True
    self._drop()  # a hook that fails in after_create_session leaves its session open
    while True:
      self._interrupted()
      try:
        with contextlib.ExitStack() as self._limits:
          session = self._try(max(0.5, deadline - time.monotonic()), first)
        self.sessions += 1
        if not first:
          _log.warning("recovered: session %d of this task", self.sessions)
        return session
      except self._worth_a_try as error:
        self._drop()
        self._interrupted()
        pause = next(pauses)
        if time.monotonic() + pause > deadline:
          raise initialise.SessionCreationError(
            "%s: %s" % (self._say_limit(limit, first), error)) from error
        _log.warning("no session yet, next try in %.2f s: %s", pause, error_line(error))
        time.sleep(pause)
      except tf.errors.OutOfRangeError as error:
        self._drop()
        raise initialise.SessionCreationError("creating the session: %s" % error) from error
      except BaseException:
        self._drop()
        raise

  def _drop(self):
    session, self.session = self.session, None
    if session is not None:
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
      session.close()


class RunSessionCreator(SessionCreator):
  """Creates the sessions of a task's training in a run."""

  def __init__(self, settings: SessionSettings, interrupted: Callable[[], None],
               membership: membership_lib.Membership, tracker: GlobalStepTracker,
               hooks: Sequence[LifecycleHook] = ()):
    """Creates the creator.

    Args:
      settings, interrupted: see `SessionCreator`.
      membership: this task's membership of the run.
      tracker: a hook that has begun when a session is created.
      hooks: the hooks that prepare for a new state and a new session.
    """
    super().__init__(settings, interrupted)
    self._membership, self._tracker, self._hooks = membership, tracker, hooks
    self._is_mirrored = False
    self._tasks = []
    self._seen = []  # the probe result of each task, from the creation of the session

  def create_session(self):
    self._membership.is_over = False
    try:
      return super().create_session()
    except (TaskUnavailableError, initialise.SessionCreationError) as error:
      lost = None
      if self._is_mirrored and self.sessions:
        lost = mirrored_sessions.lost(self._membership, self._seen)
      raise lost or error from (error if lost else error.__cause__)

  def _drop(self):
    super()._drop()  # first, so that no run of this session takes a message for the next session
    self._membership.end_session()

  def _plan(self):
    self._is_mirrored = mirrored_sessions.are_in(self._graph)
    if not self._is_mirrored:
      unplaced.place_unplaced(self._graph, self._membership.cluster)
    config = make_session_config(
      base=self.config, log_device_placement=self._membership.record.logs_placement or None)
    if not config.device_filters:
      config.device_filters.extend(make_device_filters(self._graph, self._membership.cluster))
    self.config = config
    seen = [task for task in self._membership.cluster.tasks()
            if filters_show_task(config.device_filters, task)]
    # State tasks keep the record of the run, even without a variable of this graph.
    seen += [task for task in self._membership.state_tasks if task not in seen]
    self._tasks = [task for task in seen if task.name != self._membership.cluster.task.name]
    if self._settings.ps_recovery == LOST_ONLY and partial_updates(self._graph):
      raise ValueError("ps_recovery=lost_only cannot go with synchronous updates, whose values "
                       "belong together: leave it out")
    with self._graph.as_default():
      signature_lib.check_container(
        self._membership.cluster.task, self._membership.record.container)
      self._signature = signature_lib.signature(
        self._membership.cluster.task, self._settings.shared_options)

  def _check_part(self):
    """Raises, to end a wait, after a signal, or in a mirrored worker after the last checkpoint."""
    self._interrupted()
    if self._is_mirrored:
      self._membership.check_part()

  def _check_run(self):
    self._check_part()
    self._settings.check_not_over()  # the missing tasks may have left at the end of the run

  def _limit(self, first):
    if first:
      return self._settings.start_timeout
    return self._membership.recovery_timeout

  def _say_limit(self, limit, first):
    return "no session within %.0f s%s; the last try ended with" % (
      limit, "" if first else " (--heartbeat_timeout)")

  def _try(self, limit, first):
    what = "the cluster is not ready" if first else (
      "the cluster did not come back (--heartbeat_timeout)")
    seen = wait_for_tasks(self._tasks, limit, what, self._check_run)
    if first:
      try:
        check_versions(self._membership.cluster.task, self._membership.state_tasks)
      except VersionError:
        self._membership.heartbeat.go_through_control_task()  # to report this task's end
        raise
      self._membership.check_not_held()
      self._membership.compare_clusters()
      check_paths(self._membership.record.target, self._membership.cluster.task,
                  self._membership.state_tasks, self.config, self._settings.start_timeout)
      self._membership.prove()
    self._membership.resets.wait(self._membership.heartbeat_timeout, self._interrupted)
    if self._settings.is_chief:
      session = self._create_as_chief(seen)
    else:
      self._await_chief(self._find_run, self._check_part)
      if first and self._membership.was_done:
        raise PartDoneError("%s has done its part of the run before this start" % (
          self._membership.cluster.task.name))
      session = self._open(seen)
      # The chief may be restoring a restarted ps, whose values this session already sees.
      self._membership.run.check_same()
      if self._is_mirrored:
        initialise.restore_or_initialise(session, self._scaffold, None)
      self._initialise_as_worker(session)
    if self._is_mirrored:
      mirrored_sessions.start(
        session, self._membership, self._settings.start_timeout, self._check_part)
    return session

  def _open(self, seen):
    membership, self._seen = self._membership, seen
    # The callbacks end this session, even when the creator has a newer session.
    watch = TaskWatch(
      seen, membership.recovery_timeout,
      on_gone=lambda result: self._on_gone(session, result),
      on_lost=lambda result, silence: membership.unless_over(lambda: session.abort(
        lambda: TaskLostError("lost %s: silent for %.0f s (--heartbeat_timeout)" % (
          result, silence)))))
    self.session = session = BoundedSession(
      membership.record.target, self._graph, self.config, TIMING.run_session_close_limit,
      on_close=watch.stop, explain=self._explain)
    self._limits.enter_context(initialise.within(session, self._settings.max_wait_secs))
    membership.at_loss(lambda error: session.abort(lambda: error))
    watch.start()
    # The first run connects to all tasks that the filters show, and TensorFlow sets no limit.
    call_within(
      self._settings.start_timeout,
      "connecting to the cluster through %s" % membership.record.target,
      tf.Session.run, session, self._scaffold.ready_for_local_init_op)
    return session

  def _on_gone(self, session, result):
    if self._is_mirrored:
      return mirrored_sessions.on_gone(session, self._membership, self._seen, result)
    session.abort(lambda: tf.errors.AbortedError(None, None, str(result)))
    return False

  def _explain(self, error):
    error = explain_input_error(error, self._graph)
    if self._is_mirrored:
      if self._membership.is_over:  # the error is from this task's own last runs, such as a save
        return error
      return mirrored_sessions.explain(self._membership, self._seen, error)
    return self._membership.explain(explain_round_error(error))

  # The chief.

  def _create_as_chief(self, seen):
    membership, directory = self._membership, self._settings.checkpoint_dir
    # An unusable directory raises here, before any state is cleared.
    latest = latest_checkpoint(directory) if directory else None
    if membership.run.adopt(self._signature, self._interrupted) and not self._is_mirrored:
      session = self._open(seen)
      missing = initialise.missing_variables(session, self._scaffold.ready_for_local_init_op)
      if not missing and not initialise.has_partial_update(session):
        _log.info("the servers keep this run's live state: training continues with it")
        return self._finish_as_chief(session)
      session.close()
    lost = membership.run.lost_part if self._settings.ps_recovery == LOST_ONLY and latest else []
    has_lost = bool(self.sessions or membership.run_id)
    if self._is_mirrored and has_lost:
      _log.warning("a worker has lost its session or its process: all workers go on from %s",
                   latest or "the beginning, because there is no checkpoint")
      has_lost = False
    membership.run.begin_initialisation(self._graph)
    session = self._open(seen)
    restored = self._restore_lost(session, latest, lost) if lost else []
    if not restored:
      latest = initialise.restore_or_initialise(session, self._scaffold, directory)
      lost = []
    if has_lost:
      self._say_loss(latest, lost)
    # The control task has the hooks' records.
    if not lost or membership.cluster.control_task in lost:
      for hook in self._hooks:
        hook.on_state_begun(session, latest)
    self._note_rollback(session, latest, restored)
    return self._finish_as_chief(session)

  def _say_loss(self, latest, lost):
    if not latest:
      _log.warning("the servers have lost state; there is no checkpoint, so training starts over")
    elif lost:
      _log.warning("the state of %s is lost, and so are its updates after %s. The other ps keep "
                   "their newer values", ", ".join(task.name for task in lost), latest)
    else:
      _log.warning("the servers have lost state: the steps after %s are lost", latest)

  def _restore_lost(self, session, latest, lost) -> Sequence[str]:
    """Restores the lost ps's variables; returns their names, or [] if all ps must be restored."""
    missing = initialise.missing_variables(session, self._scaffold.ready_for_local_init_op)
    saver = self._scaffold.saver
    try:
      restored = missing and restore_lost(
        session, getattr(saver, "required", saver), latest, missing)
    except RETRIES.session.errors:
      raise
    except tf.errors.OpError as error:  # a full restore names the damage of the checkpoint
      _log.info("%s", error_line(error))
      restored = False
    if not restored:
      _log.warning("the variables of %s cannot be restored alone: all ps are restored",
                   ", ".join(task.name for task in lost))
      return []
    _log.info("restored %d variables of %s from %s", len(missing),
              ", ".join(task.name for task in lost), latest)
    session.run(clear_ops(session.graph))
    return missing

  def _note_rollback(self, session, latest, restored):
    """Notes the step that the job goes back to.

    `restored` names the restored variables, or is empty if all variables were restored.
    """
    step = self._tracker.read(session)
    saved = (global_step_of_checkpoint(latest) or 0) if latest else 0
    if step is None:
      step = saved
    elif latest and (not restored or self._tracker.name in restored):
      # Another worker, whose session has not ended yet, may have made a step since the restore.
      step = min(step, saved)
    lost = self._membership.roll_back(step)
    if lost:
      _log.warning("the job goes back to step %d: %d steps are lost", step, lost)

  def _finish_as_chief(self, session):
    for hook in self._hooks:
      hook.on_session_opened(session)
    # Before the chief's own local_init_op, which may wait for all workers.
    self._membership.run.mark_initialised(self._signature)
    initialise.initialise_locally(session, self._scaffold, run=self._run_local_init_op)
    self._membership.begin_training()
    return session

  # Another worker.

  def _find_run(self):
    """Joins the run that the chief has initialised; returns False if there is no such run.

    Raises ClusterMismatchError or GraphMismatchError if the chief has another cluster or graph.
    """
    membership = self._membership
    run = membership.find_run()
    if run is None:
      return False
    chief = membership.cluster.chief
    membership.compare_with(chief, run.jobs)
    signature_lib.compare(
      self._signature, run.signature, membership.cluster.task.name, chief.name)
    membership.join(run)
    return True

  def _initialise_as_worker(self, session):
    def check():
      self._interrupted()
      if session.is_aborted:
        session.run([])  # raises the error of the abort

    def run(local_init_op):
      self._run_local_init_op(local_init_op)
      # After its mark, the chief initialises some local state for all, such as iterators on a ps.
      self._await_chief(self._membership.chief_trains, check)

    for hook in self._hooks:
      hook.on_session_opened(session)
    initialise.initialise_locally(
      session, self._scaffold, self._membership.cluster.task.name, run)

  def _await_chief(self, look, check):
    other_tasks.await_chief(
      self._membership, look, self._settings.start_timeout, self._settings.max_wait_secs, check)

  def _run_local_init_op(self, operation):
    other_tasks.run_local_init_op(
      self.session, operation, self._membership, self._settings.start_timeout,
      self._settings.max_wait_secs, self._interrupted)


class PlainSessionCreator(SessionCreator):
  """Creates sessions without knowledge of the cluster.

  Without a cluster (`master=""`), or with the target of a server that is not a `tf1ps.Server`,
  tf1ps cannot probe tasks and cannot distinguish runs. It still does the following:

  1. `start_timeout` bounds the first contact.
  2. The chief checks the checkpoint directory, then restores or initialises like TensorFlow.
  3. The other workers check four times per second whether the model is ready. TensorFlow sleeps
     30 s between two checks. Without a master there is no chief to wait for.
  4. `max_wait_secs` bounds all that follows the first contact.
  """

  _retry, _worth_a_try = RETRIES.plain_session, RETRIES.plain_session.errors

  def _plan(self):
    pass

  def _limit(self, first):
    if first:
      return self._settings.start_timeout
    return self._settings.heartbeat_timeout or _SILENCE

  def _say_limit(self, limit, first):
    del first
    return "no session on %r within %.0f s" % (self._settings.master, limit)

  def _try(self, limit, first):
    self.session = session = BoundedSession(
      self._settings.master, self._graph, self.config,
      explain=lambda error: explain_round_error(explain_input_error(error, self._graph)))
    missing = call_within(
      limit, "connecting to %r" % self._settings.master,
      initialise.missing_variables, session, self._scaffold.ready_for_local_init_op)
    if not self._settings.is_chief:
      self._await_chief(session, missing)
    with initialise.within(session, self._settings.max_wait_secs):
      if self._settings.is_chief and (
          missing or first or initialise.has_partial_update(session)):
        initialise.restore_or_initialise(session, self._scaffold, self._settings.checkpoint_dir)
      initialise.initialise_locally(session, self._scaffold)
    return session

  def _await_chief(self, session, missing):
    if missing and not self._settings.master:
      raise initialise.SessionCreationError(
        "%s. A session without a master is this process's own, so no chief can initialise them. "
        "Give master=server.target, or is_chief=True" % initialise.say_missing(missing))
    began, said = time.monotonic(), 0.0
    with initialise.within(
        session, self._settings.max_wait_secs, lambda: initialise.say_missing(missing) +
        ". The chief initialises them: read its log"):
      while missing:
        now = time.monotonic()
        if now - began > TIMING.first_report and now - said > TIMING.reminder_interval:
          said = now
          _log.warning("waiting for the chief to initialise %d variables, such as %s",
                       len(missing), missing[0])
        self._interrupted()
        time.sleep(TIMING.poll_interval)
        missing = initialise.missing_variables(session, self._scaffold.ready_for_local_init_op)
