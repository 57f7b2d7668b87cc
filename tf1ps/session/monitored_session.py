"""`tf1ps.MonitoredTrainingSession`, a drop-in for `tf.train.MonitoredTrainingSession`.

It takes the same arguments and hooks, and returns the same session object, but:

1. It starts when the cluster is ready, or names the missing tasks (session_creator.py).
2. The servers keep their live state when a chief comes back. A worker is ready within two seconds
   of the chief. A failed start is tried again after a pause, and recoveries are counted.
3. Its own hooks fetch the global step from the ps at intervals, not at every step.
4. An OutOfRangeError ends the loop cleanly only if a step raises the error.
5. `close()` is bounded. The chief's `close()` waits for the other workers, saves after the last
   update, and releases the ps (lifecycle.py).
6. A `tf.train.CheckpointSaverHook` for the same directory becomes the session's own saver, so that
   the hook also saves after the last update.
7. SIGINT and SIGTERM, where the program has no handlers of its own, end the loop, save, and exit
   with 128 + the signal's number.
8. It ends the process with exit code 0 in a worker that is started again after its part is done, or
   after a run that has reached the last step of a `tf.train.StopAtStepHook`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Iterator, Optional, Sequence, Set

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointSaver, GlobalStepTracker
from tf1ps.cluster import LifecycleHook, ServerRecord, record_of
from tf1ps.compat import last_step_of, saver_arguments
from tf1ps.session import lifecycle as lifecycle_lib
from tf1ps.session import membership as membership_lib
from tf1ps.session import packing, presence, run_directory, session_creator, summaries
from tf1ps.session import settings as settings_lib
from tf1ps.session.settings import Interval, SessionSettings

_log = logging.getLogger("tf1ps")
USE_DEFAULT: Any = object()
# The default of is_chief equals TensorFlow's default, True, but is not the same object as a given
# True: half of the programs that omit is_chief omit it in every worker.
IS_CHIEF_BY_TASK: Any = 1


def MonitoredTrainingSession(  # noqa: N802  TensorFlow's name
    master: str = "",
    is_chief: bool = IS_CHIEF_BY_TASK,
    checkpoint_dir: Optional[str] = None,
    scaffold: Optional[tf.train.Scaffold] = None,
    hooks: Optional[Sequence[tf.train.SessionRunHook]] = None,
    chief_only_hooks: Optional[Sequence[tf.train.SessionRunHook]] = None,
    save_checkpoint_secs: Optional[float] = USE_DEFAULT,
    save_summaries_steps: Optional[int] = USE_DEFAULT,
    save_summaries_secs: Optional[float] = USE_DEFAULT,
    config: Optional[tf.ConfigProto] = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: Optional[int] = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Optional[int] = USE_DEFAULT,
    summary_dir: Optional[str] = None,
    save_graph_def: bool = True,
    *,
    start_timeout: float = settings_lib.START_TIMEOUT,
    end_timeout: float = settings_lib.END_TIMEOUT,
    heartbeat_timeout: Optional[float] = None,
    expects_all: bool = True,
    ends_job: bool = True,
    ps_recovery: str = settings_lib.ALL,
    pack_bytes: Optional[int] = None
) -> lifecycle_lib.MonitoredSession:
  """Creates a session for training, like `tf.train.MonitoredTrainingSession`.

  Args:
    master: the target of this task's server; "" trains in this process. The cluster is known, and
      the module's docstring holds in full, only with the target of a `tf1ps.Server`.
    is_chief: whether this task initialises, saves and ends the job. Not given: whether it is the
      chief of the server's cluster; true without a `tf1ps.Server`.
    checkpoint_dir: where checkpoints are saved and restored from, or None.
    scaffold: a `tf.train.Scaffold`; None: the default.
    hooks: a list of `tf.train.SessionRunHook`s.
    chief_only_hooks: hooks that only the chief gets, before the others.
    save_checkpoint_secs: seconds between checkpoints; 600 where neither this nor
      save_checkpoint_steps is given; None for no checkpoints.
    save_summaries_steps: the chief's steps between summaries; 100 where neither this nor
      save_summaries_secs is given.
    save_summaries_secs: seconds between summaries.
    config: a `tf.ConfigProto`.
    stop_grace_period_secs: seconds that queue runners' threads have to end.
    log_step_count_steps: global steps between two log lines of the steps per second; None: no line.
    max_wait_secs: seconds that a living chief may take to initialise, and a task to initialise its
      own variables.
    save_checkpoint_steps: global steps between checkpoints.
    summary_dir: where event files go; None: the checkpoint directory.
    save_graph_def: whether the graph is written, as text once and as a meta graph with each
      checkpoint.
    start_timeout: seconds until the chief and every task that the graph uses must have joined.
    end_timeout: seconds without a step of any missing worker until the chief gives up its wait.
    heartbeat_timeout: seconds of silence until a task is lost; None: the server's.
    ends_job: whether the end of the session ends this task's part in the job. False: the end of
      the process ends it, and the program may open several sessions in turn.
    expects_all: whether the job fails if a worker has not joined when the others have ended.
    ps_recovery: where the chief restores the last checkpoint when a lost ps has come back: "all",
      on all ps; "lost_only", on this ps, while the others keep newer values.
    pack_bytes: variables and gradients of fewer bytes travel together; 0: each travels alone; None:
      the environment variable TF1PS_PACK_BYTES, which is 524288 by default.

  Returns:
    A `tf.train.MonitoredSession`.

  Raises:
    ValueError: the arguments contradict each other.
    TaskUnavailableError: a task, or the chief, did not join within start_timeout.
    PathError, ClusterMismatchError: a task was started with another cluster.
    GraphMismatchError: this graph differs from the chief's.
    CheckpointError: the checkpoint directory cannot be trusted.
    SessionCreationError: the session could not be created. After max_wait_secs it is a
      SessionTimeoutError, which is a `tf.errors.DeadlineExceededError`, too.
    SystemExit: with code 0, in a task that was started again after its part, or the run, was done.
  """
  settings_lib.check_limits(start_timeout=start_timeout, end_timeout=end_timeout,
                      max_wait_secs=max_wait_secs, heartbeat_timeout=heartbeat_timeout)
  if ps_recovery not in settings_lib.PS_RECOVERIES:
    raise ValueError("ps_recovery must be one of %s, got %r" % (
      ", ".join(settings_lib.PS_RECOVERIES), ps_recovery))
  record = record_of(master)
  is_chief = chief_or_not(is_chief, record)
  master = master if record is None else record.target  # an address would cost more calls
  membership = membership_of(master, is_chief, checkpoint_dir, heartbeat_timeout)
  save = _interval("save_checkpoint", save_checkpoint_secs, save_checkpoint_steps,
                   Interval(secs=600.0))
  summaries_at = _interval(
    "save_summaries", save_summaries_secs, save_summaries_steps, Interval(steps=100))

  def check_not_over():
    if record is not None:
      run_directory.check_not_over(
        checkpoint_dir, record.cluster, last_step=last_step_of(hooks or []))

  with leaves_if_done(master):
    check_not_over()
    if record is not None:
      packing.pack_once(tf.get_default_graph(), record.cluster, pack_bytes)
    return open_session(
      membership, GlobalStepTracker(), list(hooks or []), SessionSettings(
        is_chief, checkpoint_dir, scaffold, config, master, save, summaries_at, summary_dir,
        save_graph_def, log_step_count_steps, start_timeout=start_timeout, end_timeout=end_timeout,
        max_wait_secs=max_wait_secs, heartbeat_timeout=heartbeat_timeout,
        stop_grace_period_secs=stop_grace_period_secs, ps_recovery=ps_recovery, ends_job=ends_job,
        expects_all=expects_all, check_not_over=check_not_over),
      chief_only_hooks or [])


@contextlib.contextmanager
def leaves_if_done(target: str) -> Iterator[None]:
  """Exits with code 0 if a scheduler has started a worker again after the worker's part was done.

  `target` is the target of this task's server.
  """
  try:
    yield
  except run_directory.PartDoneError as error:
    presence.take_over(target)  # no task is left that reads the report of this task's end
    _log.warning("%s: leaving", error)
    raise SystemExit(0) from error


def open_session(membership: Optional[membership_lib.Membership], tracker: GlobalStepTracker,
                 hooks: Sequence[tf.train.SessionRunHook], settings: SessionSettings,
                 chief_only_hooks: Sequence[tf.train.SessionRunHook] = ()
                 ) -> lifecycle_lib.MonitoredSession:
  """Opens a training session; raises the errors of `MonitoredTrainingSession`.

  Args:
    membership: this task's membership of the run; None for an unknown cluster.
    tracker: runs before all hooks, which take the global step from the tracker.
    hooks: the hooks, in their order. The session's own hooks run before them.
    settings: the purpose and the limits of the session.
    chief_only_hooks: hooks that only the chief gets, before the others.
  """
  settings = settings._replace(scaffold=settings.scaffold or tf.train.Scaffold())
  lifecycle_hooks = [hook for hook in hooks if isinstance(hook, LifecycleHook)]
  own_hooks, saver, events = [tracker], None, None
  if settings.is_chief:
    writers, events = _summary_hooks(tracker, settings)
    own_hooks += [*chief_only_hooks, *writers]
    taken, saver = _find_saver(tracker, settings, [*own_hooks, *hooks], lifecycle_hooks, events)
    if saver is not None:
      own_hooks = [hook for hook in own_hooks if hook is not taken] + [saver]
      hooks = [hook for hook in hooks if hook is not taken]
  lifecycle = lifecycle_lib.SessionLifecycle(membership, tracker, settings, saver, events)
  if membership is not None:
    creator = session_creator.RunSessionCreator(
      settings, lifecycle.interrupted, membership, tracker, lifecycle_hooks)
  else:
    creator = session_creator.PlainSessionCreator(settings, lifecycle.interrupted)
  return lifecycle_lib.MonitoredSession(lifecycle, creator, [*own_hooks, *hooks])


def _summary_hooks(tracker, settings):
  """Returns the chief's hooks that write to the event file, and the file itself."""
  events, writers = settings.events or settings.checkpoint_dir, []
  if settings.log_step_count_steps and settings.log_step_count_steps > 0:
    writers.append(summaries.StepCounter(tracker, settings.log_step_count_steps, events))
  if events and settings.save_summaries:
    writers.append(summaries.SummarySaver(
      tracker, settings.scaffold, events, settings.save_summaries.steps,
      settings.save_summaries.secs))
  if not writers:
    return [], None
  if events:
    writers.insert(0, summaries.SessionLogger(tracker, events))
  if events and summaries.is_directory(events):
    writers.insert(0, summaries.GraphWriter(events))
  return writers, events


def _find_saver(tracker, settings, hooks, lifecycle_hooks, events):
  """Returns the program's hook that the chief's saver replaces, or None; and the saver, or None."""
  directory, every, scaffold = settings.checkpoint_dir, settings.save_checkpoint, settings.scaffold
  on_saved = functools.partial(summaries.write_checkpoint_log, events) if events else None
  if directory and every:
    return None, CheckpointSaver(
      tracker, directory, scaffold, every.secs, every.steps, settings.save_graph_def,
      settings.checkpoint_basename, lifecycle_hooks, settings.needs_global_step,
      on_saved=on_saved)
  for hook in hooks if directory else ():
    given = saver_arguments(hook) if type(hook) is tf.train.CheckpointSaverHook else None
    if given is not None and given.checkpoint_dir == directory:
      if given.saver is not None:
        scaffold = tf.train.Scaffold(saver=given.saver)
      return hook, CheckpointSaver(
        tracker, directory, given.scaffold or scaffold, given.save_secs, given.save_steps,
        given.save_graph_def, given.basename, lifecycle_hooks, listeners=given.listeners,
        on_saved=on_saved)
  return None, None


def chief_or_not(is_chief, record: Optional[ServerRecord]) -> bool:
  """Returns `is_chief`; for IS_CHIEF_BY_TASK, returns whether the server's task is the chief."""
  if is_chief is not IS_CHIEF_BY_TASK:
    return bool(is_chief)
  return record is None or record.cluster.is_chief


def membership_of(master: str, is_chief: bool, checkpoint_dir: Optional[str],
                  heartbeat_timeout: Optional[float]) -> Optional[membership_lib.Membership]:
  """Returns the membership of this task; None if `master` is not the target of a `tf1ps.Server`.

  Raises ValueError if `is_chief` contradicts the cluster.
  """
  record = record_of(master)
  if record is None:
    if master:
      _warn_once(master)
    return None
  if is_chief != record.cluster.is_chief:
    raise ValueError("is_chief=%r, but the chief of %s's cluster is %s" % (
      is_chief, record.cluster.task.name, record.cluster.chief.name))
  return membership_lib.Membership(record, checkpoint_dir, heartbeat_timeout)


_warned: Set[str] = set()  # a process global: the targets that a warning was logged for


def _warn_once(master):
  if master not in _warned:
    _warned.add(master)
    tf.logging.warning(
      "%s is not the target of a tf1ps.Server in this process, so its cluster is unknown. No task "
      "is probed, the state of older jobs is not recognised, and no ps is released.", master)


def _interval(name, secs, steps, default) -> Interval:
  if secs is USE_DEFAULT and steps is USE_DEFAULT:
    return default
  secs = None if secs is USE_DEFAULT else secs
  steps = None if steps is USE_DEFAULT else steps
  if secs is not None and steps is not None:
    raise ValueError(
      "Can not provide both every_secs and every_steps: give %s_secs or %s_steps, not both; got %r "
      "and %r" % (name, name, secs, steps))
  return Interval(secs, steps)
