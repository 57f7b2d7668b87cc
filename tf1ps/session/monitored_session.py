"""`tf1ps.MonitoredTrainingSession`, a drop-in for `tf.train.MonitoredTrainingSession`.

The same arguments, the same hooks, the same session object, with these differences:

1. It starts when the cluster is ready, or says who is missing (session_creator.py).
2. The servers' live state is kept when a chief comes back; a worker is ready within two seconds of
   the chief; retries pause and are counted.
3. Its own hooks ask the ps for the global step now and then, not at every step.
4. An OutOfRangeError ends the loop cleanly only where it comes from a step.
5. `close()` is bounded. The chief's waits for the other workers, saves after the last update, and
   releases the ps (life.py).
6. SIGINT and SIGTERM, where the program has no handlers of its own, end the loop, save, and exit
   with 128 + the signal's number.
"""

from __future__ import annotations

import logging
from typing import Optional

import tensorflow.compat.v1 as tf

# noqa: F401  registers how a server's join ends
from tf1ps.checkpoint import CheckpointSaver, GlobalStepTracker
from tf1ps.cluster import record_of
from tf1ps.session import life as life_lib
from tf1ps.session import monitored, plain_session_creator, session_creator, summaries
from tf1ps.session import participation as participation_lib

_log = logging.getLogger("tf1ps")
USE_DEFAULT = object()


def MonitoredTrainingSession(  # noqa: N802  TensorFlow's name
    master: str = "",
    is_chief: bool = True,
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
    start_timeout: float = 60.0,
    end_timeout: float = 300.0,
    heartbeat_timeout: Optional[float] = None,
    participation: Optional[participation_lib.Participation] = None,
    tracker: Optional[GlobalStepTracker] = None
):
  """Creates a session for training, like `tf.train.MonitoredTrainingSession`.

  Args:
    master: the target of this task's server; "" trains in this process. Only with the target of a
      `tf1ps.Server` is the cluster known, and everything in the module's docstring holds.
    is_chief: whether this task initialises, saves and ends the job.
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
    log_step_count_steps: global steps between two lines of steps a second; None for none.
    max_wait_secs: seconds that a living chief may take to initialise.
    save_checkpoint_steps: global steps between checkpoints.
    summary_dir: where event files go; None: the checkpoint directory.
    save_graph_def: whether the graph is written, as text once and as a meta graph with each
      checkpoint.
    start_timeout: seconds until every task that the graph uses, and the chief, must be there.
    end_timeout: seconds without a step of any missing worker until the chief gives up its wait.
    heartbeat_timeout: seconds of silence until a task is lost; None: the server's.
    participation: a `participation.Participation` that was started already and that its owner ends;
      the close of the session then neither releases the ps nor ends the heartbeat.
    tracker: the tracker that the caller's hooks take the global step from.

  Returns:
    A `tf.train.MonitoredSession`.

  Raises:
    ValueError: arguments that contradict each other.
    readiness.TaskUnavailableError: a task, or the chief, did not come within start_timeout.
    canary.PathError, participation.ClusterMismatchError: a task was started with another cluster.
    signature.GraphMismatchError: this graph differs from the chief's.
    checkpoints.CheckpointError: the checkpoint directory cannot be trusted.
    initialise.SessionCreationError: the session could not be created.
  """
  for name, value in (("start_timeout", start_timeout), ("end_timeout", end_timeout),
                      ("max_wait_secs", max_wait_secs), ("heartbeat_timeout", heartbeat_timeout)):
    if value is not None and not value > 0:
      raise ValueError("%s must be a positive number of seconds, got %r" % (name, value))
  checkpoint_secs, checkpoint_steps = _interval(
    "save_checkpoint", save_checkpoint_secs, save_checkpoint_steps, (600.0, None))
  summary_secs, summary_steps = _interval(
    "save_summaries", save_summaries_secs, save_summaries_steps, (None, 100))
  scaffold = scaffold or tf.train.Scaffold()
  part = participation or _participation(master, is_chief, checkpoint_dir, heartbeat_timeout)
  tracker = tracker or GlobalStepTracker()
  life = life_lib.SessionLife(part, tracker, end_timeout, release=participation is None)
  tracker.add_listener(life.on_answer)
  own_hooks = [tracker]
  if is_chief:
    own_hooks += chief_only_hooks or []
    own_hooks += _chief_hooks(life, tracker, scaffold, checkpoint_dir, summary_dir, checkpoint_secs,
                              checkpoint_steps, summary_secs, summary_steps, log_step_count_steps,
                              save_graph_def)
  common = dict(scaffold=scaffold, is_chief=is_chief, config=config, start_timeout=start_timeout,
                checkpoint_dir=checkpoint_dir if is_chief else None,
                max_wait_secs=max_wait_secs, interrupted=life.interrupted)
  if part is not None:
    life.creator = session_creator.RunSessionCreator(part, **common)
  else:
    life.creator = plain_session_creator.PlainSessionCreator(
      master, heartbeat_timeout=heartbeat_timeout or 30.0, **common)
  all_hooks = own_hooks + list(hooks or []) + [life_lib.LifeHook(life)]
  return monitored.MonitoredSession(life, all_hooks, stop_grace_period_secs)


def _participation(master, is_chief, checkpoint_dir, heartbeat_timeout):
  record = record_of(master)
  if record is None:
    if master:
      _say_once(master)
    return None
  if is_chief != record.cluster.is_chief:
    raise ValueError("is_chief=%r, but the chief of %s's cluster is %s" % (
      is_chief, record.cluster.task.name, record.cluster.chief.name))
  return participation_lib.Participation(record, checkpoint_dir, heartbeat_timeout)


_said = set()


def _say_once(master):
  if master not in _said:
    _said.add(master)
    tf.logging.warning(
      "%s is no target of a tf1ps.Server in this process: its cluster is not known, so nobody is "
      "probed, no state is told from an older job's, and no ps is released.", master)


def _interval(name, secs, steps, default):
  if secs is USE_DEFAULT and steps is USE_DEFAULT:
    return default
  secs = None if secs is USE_DEFAULT else secs
  steps = None if steps is USE_DEFAULT else steps
  if secs is not None and steps is not None:
    raise ValueError("give %s_secs or %s_steps, not both; got %r and %r" % (
      name, name, secs, steps))
  return secs, steps


def _chief_hooks(life, tracker, scaffold, checkpoint_dir, summary_dir, checkpoint_secs,
                 checkpoint_steps, summary_secs, summary_steps, log_step_count_steps,
                 save_graph_def):
  hooks = []
  summary_dir = summary_dir or checkpoint_dir
  if log_step_count_steps and log_step_count_steps > 0:
    hooks.append(summaries.StepCounter(tracker, log_step_count_steps, summary_dir))
  if summary_dir and (summary_secs or summary_steps or 0) > 0:
    hooks.append(summaries.SummarySaver(
      tracker, scaffold, summary_dir, summary_steps, summary_secs))
  life.summary_dir = summary_dir if hooks else None
  if checkpoint_dir and (checkpoint_secs or checkpoint_steps or 0) > 0:
    life.saver = CheckpointSaver(
      tracker, checkpoint_dir, scaffold, checkpoint_secs, checkpoint_steps, save_graph_def)
    hooks.append(life.saver)
  return hooks
