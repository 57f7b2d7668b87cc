"""Creates training sessions: within limits, and only on a cluster that is ready.

`RunSessionCreator` creates the session of a MonitoredSession, at the start and after each failure:

1. It probes the tasks that the graph uses until all are up: within `start_timeout` the first time,
   within `heartbeat_timeout` afterwards.
2. The first time, it checks each ps's version of TensorFlow, compares each ps's description of the
   cluster, and checks the path to each ps and back.
3. The chief keeps the live state if it is whole and belongs to this run. Else the chief marks the
   run as not initialised, clears the state of other runs, and restores the last checkpoint or
   initialises the variables. The other workers wait for that, and compare their graph with the
   chief's.
4. It initialises local variables and iterators. A watch ends the runs of the session: with
   AbortedError when a ps was restarted or the container of the job was reset, so that the
   MonitoredSession creates a new session; with TaskLostError when a task is silent for too long.

After an Aborted or Unavailable error the creator tries again, as the table of retries says. It
raises an OutOfRangeError, which a MonitoredSession would take for the end of the data, as
SessionCreationError.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import global_step_of_checkpoint, latest_checkpoint
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
  probe_tasks,
  wait_for_tasks,
)
from tf1ps.compat import RETRIES, TIMING, Error, error_line
from tf1ps.pipeline import explain_input_error
from tf1ps.replication import clear_ops, explain_round_error, partial_updates
from tf1ps.session import initialise, limits, mirrored_sessions, unplaced
from tf1ps.session import membership as membership_lib
from tf1ps.session import signature as signature_lib
from tf1ps.session.lost_state import restore_lost
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")
_WORTH_A_TRY = RETRIES.session.errors + (ControlError,)


class TaskLostError(Error, RuntimeError):
  """A task that the session needs has been silent for too long."""


class PartDoneError(Error, RuntimeError):
  """An earlier process of this task has done the task's part in the run: nothing is left to do."""


class RunSessionCreator(tf.train.SessionCreator):
  """Creates the sessions of one task's training in a run."""

  def __init__(self, membership: membership_lib.Membership, scaffold: tf.train.Scaffold,
               is_chief: bool, config: Optional[tf.ConfigProto] = None,
               checkpoint_dir: Optional[str] = None, start_timeout: float = limits.START_TIMEOUT,
               max_wait_secs: float = 7200.0, interrupted: Callable[[], None] = lambda: None,
               hooks: Sequence[LifecycleHook] = (), shared_options: Sequence[str] = (),
               ps_recovery: str = limits.ALL):
    """Creates the creator.

    Args:
      membership: this task's membership of the run.
      scaffold: the scaffold; the first session finalises it.
      is_chief: whether this task initialises the variables.
      config: the session config. A config without device filters gets them from the graph.
      checkpoint_dir: the directory that the chief restores from, or None.
      start_timeout: seconds until all tasks, and the chief, must answer.
      max_wait_secs: seconds that a live chief may take to initialise the variables.
      interrupted: is called in each wait, and raises when the wait must end (after a signal).
      hooks: the hooks that prepare for a new state and a new session.
      shared_options: texts of flags that must be the same in all workers.
      ps_recovery: one of PS_RECOVERIES: what the chief restores when a ps was lost.
    """
    self._ps_recovery = ps_recovery
    self._membership, self._scaffold, self._is_chief = membership, scaffold, is_chief
    self.config = config
    self._checkpoint_dir, self._start_timeout = checkpoint_dir, start_timeout
    self._max_wait_secs, self._interrupted = max_wait_secs, interrupted
    self._hooks, self._shared_options = hooks, shared_options
    self._graph = None
    self._is_mirrored = False
    self._tasks = []
    self._seen = []  # the answer of each when the session was created
    self.session = None
    self.sessions = 0  # the sessions after the first are recoveries
    self.is_creating = False

  def end_creation(self) -> None:
    """Notes that every hook knows the session."""
    self.is_creating = False

  def create_session(self):
    """Creates a session; see the module's docstring for what may be raised."""
    if self._graph is None:
      self._plan()
    first = self.sessions == 0
    limit = self._start_timeout if first else self._membership.recovery_timeout
    pauses, deadline = RETRIES.session.pauses(), time.monotonic() + limit
    self.is_creating = True
    self._drop()  # a hook that fails in after_create_session leaves its session open
    if self._is_mirrored and not first:
      raise mirrored_sessions.again()
    while True:
      try:
        return self._try(max(0.5, deadline - time.monotonic()), first)
      except _WORTH_A_TRY as error:
        self._drop()
        self._interrupted()
        pause = next(pauses)
        if time.monotonic() + pause > deadline:
          raise initialise.SessionCreationError(
            "no session within %.0f s%s; the last try ended with: %s" % (
              limit, "" if first else " (%s)" % self._membership.recovery_flag, error)) from error
        _log.warning("no session yet, next try in %.2f s: %s", pause, error_line(error))
        time.sleep(pause)
      except tf.errors.OutOfRangeError as error:
        self._drop()
        raise initialise.SessionCreationError("creating the session: %s" % error) from error
      except BaseException:
        self._drop()
        raise

  def _plan(self):
    initialise.finalize(self._scaffold)
    self._graph = tf.get_default_graph()
    self._is_mirrored = mirrored_sessions.are_in(self._graph)
    if not self._is_mirrored:
      unplaced.place_unplaced(self._graph, self._membership.cluster)
    config = make_session_config(base=self.config)
    if not config.device_filters:
      config.device_filters.extend(make_device_filters(self._graph, self._membership.cluster))
    self.config = config
    seen = [task for task in self._membership.cluster.tasks()
            if filters_show_task(config.device_filters, task)]
    # The holders too: they keep the record of the run, even without a variable of this graph.
    needed = self._membership.cluster.replicas if self._is_mirrored else []
    seen += [task for task in [*self._membership.holders, *needed] if task not in seen]
    self._tasks = [task for task in seen if task.name != self._membership.cluster.task.name]
    if self._ps_recovery == limits.LOST_ONLY and partial_updates(self._graph):
      raise ValueError("ps_recovery=lost_only cannot go with synchronous updates, whose values "
                       "belong together: leave it out")
    with self._graph.as_default():
      signature_lib.check_container(
        self._membership.cluster.task, self._membership.record.container)
      self._signature = signature_lib.signature(self._membership.cluster.task, self._shared_options)

  def _end_of_run(self, began):
    """Returns a callable for the wait for the tasks, which may have left because the run ended."""
    def check():
      self._interrupted()
      if time.monotonic() - began > TIMING.ended_run_wait and self._membership.has_ended_before():
        raise PartDoneError("the run has ended with %s" % self._membership.goal)

    return check

  def _try(self, limit, first):
    what = "the cluster is not ready" if first else (
      "the cluster did not come back (%s)" % self._membership.recovery_flag)
    seen = wait_for_tasks(
      self._tasks, limit, what, self._end_of_run(time.monotonic()) if first else self._interrupted)
    if first:
      try:
        check_versions(self._membership.cluster.task, self._membership.holders)
      except VersionError:
        self._membership.heartbeat.go_through_keeper()  # the report of this task's end
        raise
      self._membership.check_holder()
      self._membership.compare_clusters()
      check_paths(self._membership.record.target, self._membership.cluster.task,
                  self._membership.holders, self.config, self._start_timeout)
      self._membership.prove()
    self._membership.resets.wait(self._membership.heartbeat_timeout, self._interrupted)
    if self._is_chief:
      session = self._create_as_chief(seen)
    else:
      _await_chief(self._membership, self._signature, self._start_timeout,
                             self._max_wait_secs, self._interrupted)
      if first and self._membership.was_done:
        raise PartDoneError("%s has done its part of the run before this start" % (
          self._membership.cluster.task.name))
      session = self._open(seen)
      # A ps that was restarted since then is being restored, and this session sees its values.
      self._membership.check_same_run()
      if self._is_mirrored:
        initialise.restore_or_initialise(session, self._scaffold, None)
      self._initialise_locally(session)
    if self._is_mirrored:
      mirrored_sessions.start(session, self._membership, self._start_timeout)
    self.sessions += 1
    if self.sessions > 1:
      _log.warning("recovered: session %d of this task", self.sessions)
    return session

  def _open(self, seen):
    membership, self._seen = self._membership, seen
    # The callbacks are about this session, even when the creator has a newer one.
    watch = TaskWatch(
      seen, membership.recovery_timeout,
      on_gone=lambda one: self._on_gone(session, one),
      on_lost=lambda one, silence: session.abort(
        lambda: TaskLostError("lost %s: silent for %.0f s (%s)" % (
          one, silence, membership.recovery_flag))))
    self.session = session = BoundedSession(
      membership.record.target, self._graph, self.config, TIMING.run_session_close_limit,
      on_close=watch.stop, explain=self._explain)
    membership.on_new_run(lambda reason: session.abort(
      lambda: tf.errors.AbortedError(None, None, reason)))
    watch.start()
    # The first run connects to all tasks that the filters show, and TensorFlow sets no limit.
    call_within(
      self._start_timeout, "connecting to the cluster through %s" % membership.record.target,
      tf.Session.run, session, self._scaffold.ready_for_local_init_op)
    return session

  def _on_gone(self, session, one):
    error = tf.errors.AbortedError(None, None, str(one))
    if self._is_mirrored:
      error = None
      if not self._membership.is_over:
        error = mirrored_sessions.lost(self._membership, self._seen)
    if error is not None:
      session.abort(lambda: error)

  def _explain(self, error):
    error = explain_input_error(error, self._graph)
    if self._is_mirrored:
      if self._membership.is_over:  # an error of this task's own last runs, such as a save
        return error
      return mirrored_sessions.explain(self._membership, self._seen, error)
    return self._membership.resets.explain(explain_round_error(error))

  def _drop(self):
    session, self.session = self.session, None
    if session is not None:
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
      session.close()

  # The chief.

  def _create_as_chief(self, seen):
    membership = self._membership
    # A directory that cannot be used raises here, before any state is cleared.
    latest = latest_checkpoint(self._checkpoint_dir) if self._checkpoint_dir else None
    if membership.adopt(self._signature, self._interrupted):
      session = self._open(seen)
      missing = initialise.missing_variables(session, self._scaffold.ready_for_local_init_op)
      if not missing and not initialise.has_partial_update(session):
        _log.info("the servers keep this run's live state: training continues with it")
        return self._finish_as_chief(session)
      session.close()
    lost = membership.lost_part if self._ps_recovery == limits.LOST_ONLY and latest else []
    has_lost = bool(self.sessions or membership.run_id)
    membership.begin_initialisation(self._graph)
    session = self._open(seen)
    if not (lost and self._restore_lost(session, latest, lost)):
      latest = initialise.restore_or_initialise(session, self._scaffold, self._checkpoint_dir)
      lost = []
    if has_lost:
      self._say_loss(latest, lost)
    if not lost or membership.cluster.control_task in lost:  # which has the hooks' records
      for hook in self._hooks:
        hook.on_state_begun(session, latest)
    self._note_rollback(session, latest)
    return self._finish_as_chief(session)

  def _say_loss(self, latest, lost):
    if not latest:
      _log.warning("the servers have lost state; there is no checkpoint, so training starts over")
    elif lost:
      _log.warning("%s lost its state; what it had after %s is lost. The other ps keep their newer "
                   "values", ", ".join(task.name for task in lost), latest)
    else:
      _log.warning("the servers have lost state; what came after %s is lost", latest)

  def _restore_lost(self, session, latest, lost) -> bool:
    missing = initialise.missing_variables(session, self._scaffold.ready_for_local_init_op)
    saver = self._scaffold.saver
    try:
      restored = missing and restore_lost(
        session, getattr(saver, "required", saver), latest, missing)
    except RETRIES.session.errors:
      raise
    except tf.errors.OpError as error:  # a full restore says what is wrong with the checkpoint
      _log.info("%s", error_line(error))
      restored = False
    if not restored:
      _log.warning("the part of %s cannot be restored alone: all ps are restored",
                   ", ".join(task.name for task in lost))
      return False
    _log.info("restored %d variables of %s from %s", len(missing),
              ", ".join(task.name for task in lost), latest)
    session.run(clear_ops(session.graph))
    return True

  def _note_rollback(self, session, latest):
    """Says how many steps are lost, as far as the chief has heard of them."""
    tensor = tf.train.get_global_step(self._graph)
    if tensor is not None:
      step = int(session.run(tensor))
    else:
      step = (global_step_of_checkpoint(latest) or 0) if latest else 0
    lost = self._membership.roll_back(step)
    if lost:
      _log.warning("the job goes back to step %d: %d steps are lost", step, lost)


  def _finish_as_chief(self, session):
    self._initialise_locally(session)
    self._membership.mark_initialised(self._signature)
    return session

  def _initialise_locally(self, session):
    for hook in self._hooks:
      hook.on_session_opened(session)
    task = None if self._is_chief else self._membership.cluster.task.name
    initialise.initialise_locally(session, self._scaffold, task)


def _await_chief(membership: membership_lib.Membership, signature: List[list],
                 start_timeout: float, max_wait_secs: float,
                 interrupted: Callable[[], None]) -> None:
  """Waits until the chief has initialised the run, and joins it.

  Raises:
    TaskUnavailableError: the chief has sent no heartbeat for `start_timeout` seconds.
    SessionCreationError: a live chief has taken more than `max_wait_secs`.
    ClusterMismatchError, GraphMismatchError: the chief has another cluster or graph.
  """
  chief = membership.cluster.chief
  began, said = time.monotonic(), 0.0
  last_sign = began
  while True:
    found = membership.find_run()
    if found is not None:
      membership.compare_with(chief, found.jobs)
      signature_lib.compare(signature, found.signature, membership.cluster.task.name, chief.name)
      membership.join(found)
      return
    now = time.monotonic()
    member = membership.chief_member()
    if member is not None and not member.has_ended and member.age < TIMING.alive_within:
      last_sign = now
    if now - last_sign > start_timeout:
      raise TaskUnavailableError(
        probe_tasks([chief]), now - began, "the chief has initialised no run")
    if now - began > max_wait_secs:
      raise initialise.SessionCreationError(
        "%s has not initialised the run within %.0f s (max_wait_secs)" % (
          chief.name, max_wait_secs))
    if now - began > TIMING.first_report and now - said > TIMING.reminder_interval:
      said = now
      state = "has not come" if member is None else "is %s" % member.state
      _log.warning("waiting for the chief %s at %s to initialise (it %s)",
                   chief.name, chief.address, state)
    interrupted()
    time.sleep(TIMING.poll_interval)
