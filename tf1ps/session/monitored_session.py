"""`tf1ps.MonitoredTrainingSession`, a drop-in for `tf.train.MonitoredTrainingSession`.

The same arguments, the same hooks, the same session object, with these differences:

1. It starts when the cluster is ready, or names the missing tasks (session_creator.py).
2. The servers' live state is kept when a chief comes back; a worker is ready within two seconds of
   the chief; retries pause and are counted.
3. Its own hooks fetch the global step from the ps at intervals, not at every step.
4. An OutOfRangeError ends the loop cleanly only where it comes from a step.
5. `close()` is bounded. The chief's waits for the other workers, saves after the last update, and
   releases the ps (lifecycle.py).
6. A `tf.train.CheckpointSaverHook` for the same directory becomes the session's own saver, so that
   it saves after the last update, too.
7. SIGINT and SIGTERM, where the program has no handlers of its own, end the loop, save, and exit
   with 128 + the signal's number.
8. In a worker that is started again after it has done its part, it ends the process with 0. So it
   does after the run's end, if the run has reached the last step of a `tf.train.StopAtStepHook`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Callable, Iterator, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointSaver, GlobalStepTracker
from tf1ps.cluster import Cluster, LifecycleHook, ServerRecord, probe_tasks, record_of
from tf1ps.compat import TIMING, last_step_of, saver_arguments
from tf1ps.session import lifecycle as lifecycle_lib
from tf1ps.session import limits, plain_session_creator, session_creator, summaries
from tf1ps.session import membership as membership_lib
from tf1ps.state import RUN_ENDED, RunFile

_log = logging.getLogger("tf1ps")
USE_DEFAULT = object()
# The default of is_chief: it equals TensorFlow's default, and differs from a True that is given.
# Half of the programs that leave is_chief out do so in every worker.
IS_CHIEF_BY_TASK = 1


def MonitoredTrainingSession(  # noqa: N802  TensorFlow's name
    master: str = "",
    is_chief: bool = IS_CHIEF_BY_TASK,
    checkpoint_dir: Optional[str] = None,
    scaffold: Optional[tf.train.Scaffold] = None,
    hooks=None,
    chief_only_hooks=None,
    save_checkpoint_secs=USE_DEFAULT,
    save_summaries_steps=USE_DEFAULT,
    save_summaries_secs=USE_DEFAULT,
    config: Optional[tf.ConfigProto] = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: Optional[int] = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps=USE_DEFAULT,
    summary_dir: Optional[str] = None,
    save_graph_def: bool = True,
    *,
    start_timeout: float = limits.START_TIMEOUT,
    end_timeout: float = limits.END_TIMEOUT,
    heartbeat_timeout: Optional[float] = None,
    expects_all: bool = True,
    ends_job: bool = True,
    ps_recovery: str = limits.ALL
):
  """Creates a session for training, like `tf.train.MonitoredTrainingSession`.

  Args:
    master: the target of this task's server; "" trains in this process. Only with the target of a
      `tf1ps.Server` is the cluster known, and everything in the module's docstring holds.
    is_chief: whether this task initialises, saves and ends the job. Not given: whether it is the
      chief of the server's cluster; true without a `tf1ps.Server`.
    checkpoint_dir: where checkpoints are saved and restored from, or None.
    scaffold: a `tf.train.Scaffold`, or None for the default one.
    hooks: a list of `tf.train.SessionRunHook`s.
    chief_only_hooks: hooks that only the chief gets, before the others.
    save_checkpoint_secs: seconds between checkpoints; 600 where neither this nor
      save_checkpoint_steps is given; None for no checkpoints.
    save_summaries_steps: the chief's steps between summaries; 100 where neither is given.
    save_summaries_secs: seconds between summaries.
    config: a `tf.ConfigProto`.
    stop_grace_period_secs: seconds that queue runners' threads have to end.
    log_step_count_steps: global steps between two log lines of the steps per second; None for none.
    max_wait_secs: seconds that a living chief may take to initialise.
    save_checkpoint_steps: global steps between checkpoints.
    summary_dir: where event files go; None: the checkpoint directory.
    save_graph_def: whether the graph is written, as text once and as a meta graph with each
      checkpoint.
    start_timeout: seconds until the chief and every task that the graph uses must have joined.
    end_timeout: seconds without a step of any missing worker until the chief gives up its wait.
    heartbeat_timeout: seconds of silence until a task is lost; None: the server's.
    ends_job: whether the end of the session ends this task's part in the job. False: the end of
      the process does, and the program may open several sessions, one after the other.
    expects_all: whether the job fails if a worker has not joined when the others have ended.
    ps_recovery: what the chief restores when a ps was lost and has come back: "all" for the last
      checkpoint, on all ps; "lost_only" for what this ps had, while the others keep newer values.

  Returns:
    A `tf.train.MonitoredSession`.

  Raises:
    ValueError: arguments that contradict each other.
    TaskUnavailableError: a task, or the chief, did not join within start_timeout.
    PathError, ClusterMismatchError: a task was started with another cluster.
    GraphMismatchError: this graph differs from the chief's.
    CheckpointError: the checkpoint directory cannot be trusted.
    SessionCreationError: the session could not be created.
    SystemExit: with 0, in a task that was started again after its part, or the run, was done.
  """
  limits.check_limits(start_timeout=start_timeout, end_timeout=end_timeout,
                      max_wait_secs=max_wait_secs, heartbeat_timeout=heartbeat_timeout)
  if ps_recovery not in limits.PS_RECOVERIES:
    raise ValueError("ps_recovery must be one of %s, got %r" % (
      ", ".join(limits.PS_RECOVERIES), ps_recovery))
  record = record_of(master)
  is_chief = chief_or_not(is_chief, record)
  master = master if record is None else record.target  # by its address it would cost calls
  membership = membership_of(master, is_chief, checkpoint_dir, heartbeat_timeout)
  save = _interval("save_checkpoint", save_checkpoint_secs, save_checkpoint_steps,
                   Interval(secs=600.0))
  summaries_at = _interval(
    "save_summaries", save_summaries_secs, save_summaries_steps, Interval(steps=100))
  with leaves_if_done():
    if membership is not None and checkpoint_dir and _is_over(membership, checkpoint_dir, hooks):
      raise session_creator.PartDoneError("the run in %s has ended" % checkpoint_dir)
    return open_session(
      membership, GlobalStepTracker(), list(hooks or []), checkpoint_dir, scaffold, config, save,
      summaries_at, master=master, is_chief=is_chief, chief_only_hooks=chief_only_hooks or [],
      summary_dir=summary_dir, save_graph_def=save_graph_def,
      log_step_count_steps=log_step_count_steps, start_timeout=start_timeout,
      end_timeout=end_timeout, max_wait_secs=max_wait_secs, heartbeat_timeout=heartbeat_timeout,
      stop_grace_period_secs=stop_grace_period_secs, expects_all=expects_all, ends_job=ends_job,
      ps_recovery=ps_recovery)


def _is_over(membership, checkpoint_dir, hooks) -> bool:
  """Whether the run had ended, at the last step of these hooks, before this start."""
  status, last_step = RunFile(checkpoint_dir).read(), last_step_of(hooks or [])
  return (status is not None and status.state == RUN_ENDED and last_step is not None
          and status.global_step >= last_step and is_deserted(membership.cluster))


def is_deserted(cluster: Cluster) -> bool:
  """Whether no task that a job would need comes, for a run that has ended before this start."""
  tasks = cluster.ps or [task for task in cluster.replicas if task.name != cluster.task.name]
  until = time.monotonic() + TIMING.ended_run_wait
  while tasks and time.monotonic() < until:
    if any(one.is_up for one in probe_tasks(tasks)):
      return False
    time.sleep(TIMING.poll_interval)
  return bool(tasks)


@contextlib.contextmanager
def leaves_if_done() -> Iterator[None]:
  """Ends the process with 0 where a scheduler has started a worker again after its part."""
  try:
    yield
  except session_creator.PartDoneError as error:
    _log.warning("%s: leaving", error)
    raise SystemExit(0) from error


class Interval(NamedTuple):
  """The interval of an action, in seconds or in steps; None for both means never."""

  secs: Optional[float] = None  # seconds
  steps: Optional[int] = None  # steps

  def __bool__(self):
    return (self.secs or self.steps or 0) > 0


def open_session(
  membership: Optional[membership_lib.Membership],
  tracker: GlobalStepTracker,
  hooks: Sequence[tf.train.SessionRunHook],
  checkpoint_dir: Optional[str],
  scaffold: Optional[tf.train.Scaffold],
  config: Optional[tf.ConfigProto],
  save_checkpoint: Interval,
  save_summaries: Interval,
  *,
  is_chief: bool,
  master: str = "",
  chief_only_hooks: Sequence[tf.train.SessionRunHook] = (),
  summary_dir: Optional[str] = None,
  save_graph_def: bool = True,
  log_step_count_steps: Optional[int] = None,
  start_timeout: float = limits.START_TIMEOUT,
  end_timeout: float = limits.END_TIMEOUT,
  max_wait_secs: float = 7200.0,
  heartbeat_timeout: Optional[float] = None,
  stop_grace_period_secs: float = 120,
  releases: bool = True,
  ends_job: bool = True,
  count_examples: Callable[[], int] = lambda: 0,
  ends_by_vote: bool = False,
  expects_all: bool = True,
  shared_options: Sequence[str] = (),
  checkpoint_basename: str = "model.ckpt",
  needs_global_step: bool = True,
  awaits_workers: bool = True,
  ps_recovery: str = limits.ALL,
  saver_listeners: Sequence[tf.train.CheckpointSaverListener] = (),
) -> lifecycle_lib.MonitoredSession:
  """Opens a training session; see `MonitoredTrainingSession` for the arguments not named here.

  Args:
    membership: this task's membership of the run; None for an unknown cluster.
    tracker: the tracker that the hooks take the global step from; it stands before them.
    hooks: the hooks, in their order. The session's own hooks stand before them.
    save_checkpoint: how often the chief saves.
    save_summaries: how often the chief writes summaries.
    releases: whether the end of the session ends the job and the membership.
    count_examples: returns the examples that this worker has trained on.
    ends_by_vote: whether a hook ends the loop after a signal, for all workers together.
    shared_options: texts of flags that all workers must agree on.
    checkpoint_basename: the names of the checkpoints before "-STEP".
    needs_global_step: whether a graph without a global step cannot be saved.
    awaits_workers: whether the end of the chief waits for the other workers.
    saver_listeners: called around each checkpoint.
  """
  scaffold = scaffold or tf.train.Scaffold()
  lifecycle_hooks = [hook for hook in hooks if isinstance(hook, LifecycleHook)]
  own_hooks, saver, events = [tracker], None, None
  if is_chief:
    own_hooks.extend(chief_only_hooks)
    events = summary_dir or checkpoint_dir
    writers = []
    if log_step_count_steps and log_step_count_steps > 0:
      writers.append(summaries.StepCounter(tracker, log_step_count_steps, events))
    if events and save_summaries:
      writers.append(summaries.SummarySaver(
        tracker, scaffold, events, save_summaries.steps, save_summaries.secs))
    if not writers:
      events = None
    if events:
      own_hooks.append(summaries.GraphWriter(events))
    own_hooks.extend(writers)
    if checkpoint_dir and save_checkpoint:
      saver = CheckpointSaver(tracker, checkpoint_dir, scaffold, save_checkpoint.secs,
                              save_checkpoint.steps, save_graph_def, checkpoint_basename,
                              lifecycle_hooks, needs_global_step, saver_listeners)
      own_hooks.append(saver)
    elif checkpoint_dir:
      taken, saver = _own_saver(
        tracker, checkpoint_dir, scaffold, [*own_hooks, *hooks], lifecycle_hooks)
      if saver is not None:
        own_hooks = [hook for hook in own_hooks if hook is not taken] + [saver]
        hooks = [hook for hook in hooks if hook is not taken]
  lifecycle = lifecycle_lib.SessionLifecycle(
    membership, tracker, end_timeout, saver, events, releases, count_examples, ends_by_vote,
    expects_all, ends_job, awaits_workers)
  common = dict(scaffold=scaffold, is_chief=is_chief, config=config, start_timeout=start_timeout,
                checkpoint_dir=checkpoint_dir if is_chief else None,
                max_wait_secs=max_wait_secs, interrupted=lifecycle.interrupted)
  if membership is not None:
    creator = session_creator.RunSessionCreator(
      membership, hooks=lifecycle_hooks, shared_options=shared_options, ps_recovery=ps_recovery,
      **common)
  else:
    creator = plain_session_creator.PlainSessionCreator(
      master, heartbeat_timeout=heartbeat_timeout or 30.0, **common)
  return lifecycle_lib.MonitoredSession(
    lifecycle, creator, [*own_hooks, *hooks], stop_grace_period_secs)


def _own_saver(tracker, checkpoint_dir, scaffold, hooks, lifecycle_hooks):
  """Finds the program's `CheckpointSaverHook` for the session's directory.

  Returns the hook and the saver that takes its place; (None, None) without one.
  """
  for hook in hooks:
    given = saver_arguments(hook) if type(hook) is tf.train.CheckpointSaverHook else None
    if given is not None and given.checkpoint_dir == checkpoint_dir:
      if given.saver is not None:
        scaffold = tf.train.Scaffold(saver=given.saver)
      return hook, CheckpointSaver(
        tracker, checkpoint_dir, given.scaffold or scaffold, given.save_secs, given.save_steps,
        given.save_graph_def, given.basename, lifecycle_hooks, listeners=given.listeners)
  return None, None


def chief_or_not(is_chief, record: Optional[ServerRecord]) -> bool:
  """Returns `is_chief`; for IS_CHIEF_BY_TASK whether the task of the server is the chief."""
  if is_chief is not IS_CHIEF_BY_TASK:
    return bool(is_chief)
  return record is None or record.cluster.is_chief


def membership_of(master: str, is_chief: bool, checkpoint_dir: Optional[str],
                  heartbeat_timeout: Optional[float]) -> Optional[membership_lib.Membership]:
  """Returns the membership of this task; None if `master` is no target of a `tf1ps.Server`.

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


_warned = set()  # targets: one warning each per process, however many sessions it opens


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
    raise ValueError("give %s_secs or %s_steps, not both; got %r and %r" % (
      name, name, secs, steps))
  return Interval(secs, steps)
