"""A worker's training, from its start to its end. Read this file first.

1. The worker joins the run: its heartbeat begins. The chief tries the evaluation on one batch, so
   that a mistake there shows before training.
2. It builds its step (build.py), and the hooks beside it from an ordered list (features.py).
3. It opens a session and runs steps until a stop.
4. At the end its hooks leave. Other workers report their end. The chief waits for them and saves.
   If a ps is lost before that, the steps since the last checkpoint are lost with it. Then the chief
   of an asynchronous job opens another session (2, 3), and repeats these steps.
5. The chief evaluates the last checkpoint and releases the ps.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointSaver, make_saver, moving_averages_here, use_latest
from tf1ps.cluster import Server, probe_tasks
from tf1ps.compat import TIMING, new_graph
from tf1ps.graph import says_building
from tf1ps.pipeline import use_bad_records
from tf1ps.program import Program, evaluate_checkpoint, try_evaluation
from tf1ps.session import (
  Interval,
  JobFailedError,
  Membership,
  PartDoneError,
  SessionSettings,
  open_session,
  report_part,
  wait_for_workers,
)
from tf1ps.training import build, epochs, features, joining
from tf1ps.training import options as options_lib
from tf1ps.training.outcome import Outcome

_log = logging.getLogger("tf1ps")


def train(program: Program, server: Server, options: options_lib.Options,
          on_session: Callable[[], None] = lambda: None) -> Outcome:
  """Trains a program as one worker of a job, to the job's end.

  Args:
    program: the user's program.
    server: this task's running server.
    options: the job's options.
    on_session: called when the first session is open, before the first step.

  Returns:
    This worker's `Outcome`.

  Raises:
    ValueError: the options cannot work together.
    JobFailedError: this worker did its part, but another worker did not.
    NanLossError, and the errors of `MonitoredTrainingSession`.
  """
  options_lib.check_options(options)
  try:
    joining.check_not_over(server.cluster, options)
    return _train_in_run(program, server, options, on_session)
  except PartDoneError as done:
    return _outcome_of_nothing(str(done))


def _train_in_run(program, server, options, on_session) -> Outcome:
  with joining.join(server, options) as run, joining.directory_of(run, options) as directory:
    run.goal = joining.goal_of(options)
    epochs_before = epochs.finished_before(
      run, options, lambda: joining.check_not_over(run.cluster, options))
    if epochs_before:
      _log.info("before this start, the job went through its data %d times, of --epochs=%d",
                epochs_before, options.epochs)
    bad_records = options_lib.bad_records_of(options)
    if run.has_trained:
      return _finish(program, run, options, directory, _part_before(run), bad_records)
    if run.is_chief:
      try_evaluation(program, options_lib.first_batch_size(options.batch_size), bad_records)
    part = None
    while part is None or part.makes_lost_steps:
      part = _train_part(program, run, options, directory, epochs_before, bad_records,
                         on_session, part)
    if not run.is_chief:
      return part.outcome
    return _finish(program, run, options, directory, part, bad_records)


class _Part(NamedTuple):
  """A worker's training, from the opening of its session to the close."""

  loop: Optional[features.Loop]  # None: an earlier process ran the loop
  outcome: Outcome
  problems: List[str]  # a sentence for each other worker that did not do its part
  makes_lost_steps: bool  # whether the chief repeats steps that were lost with a ps


def _train_part(program, run: Membership, options: options_lib.Options, directory, epochs_before,
                bad_records, on_session, before: Optional[_Part]) -> _Part:
  """Trains until a stop, and to the close of the session.

  `before` is the previous part. TensorFlow still has the session of that part open, because closing
  it would keep this part's sessions waiting.
  """
  left = options
  if epochs_before:
    left = options._replace(epochs=max(options.epochs - epochs_before, 1))
  shard = options_lib.shard_of(left, run.cluster.replica_index, run.cluster.num_replicas)
  if before is not None:
    options = options._replace(start_timeout=max(options.start_timeout, run.recovery_timeout))
  with new_graph() as graph:
    with says_building(graph):
      use_bad_records(bad_records)
      step = build.build_step(program, run.cluster, shard, left, run.record.container)
      loop = features.Loop(
        step, shard, run, options, bad_records, epochs_before, before and before.loop)
    with loop.stalls, _open_session(loop, run, options, directory) as session:
      began = time.monotonic()
      on_session()
      while not session.should_stop():
        session.run(loop.train_op)
      loop.stops.end_loop()
    outcome = loop.outcome(time.monotonic() - began)
    if before is not None:
      outcome = outcome._replace(seconds=before.outcome.seconds + outcome.seconds)
  problems, step = session.lifecycle.problems, loop.counts.tracker.value
  makes_lost_steps = (
    loop.has_gone_back and run.is_chief and not problems
    and _can_train_alone(options, run.cluster)
    # Otherwise a chief whose ps dies in each save would repeat the steps forever.
    and (before is None or step > before.loop.counts.tracker.value))
  if makes_lost_steps:
    _log.warning("a ps was lost when training had ended, and the last steps with it: the chief "
                 "makes them again, from step %d", step)
  elif loop.has_gone_back:
    run.goal = ""  # the job that is started again makes the steps that are lost
  return _Part(loop, outcome, problems, makes_lost_steps)


def _part_before(run: Membership) -> _Part:
  """The part of a chief's earlier process, which saved the last checkpoint of a job without ps."""
  run.claim_trained_run(lambda: None)
  others = [task for task in run.cluster.replicas if task != run.cluster.task]
  problems = []
  if any(probe.is_up for probe in probe_tasks(others)):  # they leave when they know
    problems = wait_for_workers(run, TIMING.end_timeout, lambda: None, expects_all=False)
  return _Part(None, _outcome_of_nothing(
    "the last checkpoint was saved before this start"), problems, False)


def _can_train_alone(options, cluster) -> bool:
  """Whether the chief can make a step when the other workers have left."""
  return (options.replication == options_lib.IN_GRAPH or not options.is_synchronous
          or cluster.num_replicas == 1)


def _outcome_of_nothing(reason: str) -> Outcome:
  _log.info("%s", reason)
  return Outcome(steps=0, global_step=-1, examples=0, seconds=0.0, reason=reason, late=0,
                 staleness="", evaluation=None, members=[])


def _open_session(loop: features.Loop, run: Membership, options, directory):
  scaffold = tf.train.Scaffold(
    saver=make_saver(loop.optional_variables, options.saves.keep,
                     moving_averages_here() if options.moving_average_decay else ()))
  hooks = list(loop.hooks)
  if run.is_chief and not options.checkpoint_dir:  # for the evaluation at the end
    hooks.append(CheckpointSaver(
      loop.counts.tracker, directory, scaffold, 1e9, None, save_graph_def=False))
  return open_session(run, loop.counts.tracker, hooks, SessionSettings(
    run.is_chief, options.checkpoint_dir, scaffold, options.config,
    save_checkpoint=Interval(options.saves.secs, options.saves.steps),
    save_summaries=Interval(steps=options.save_summary_steps),
    start_timeout=options.start_timeout, end_timeout=TIMING.end_timeout,
    ps_recovery=options.ps_recovery, releases=False,
    ends_by_vote=None if loop.vote is None else lambda: not loop.counts.by_signal,
    shared_options=options_lib.shared_by_workers(options),
    count_examples=lambda: loop.counts.examples,
    check_not_over=lambda: joining.check_not_over(run.cluster, options)))


def _finish(program, run: Membership, options, directory, part: _Part, bad_records) -> Outcome:
  """Evaluates the last checkpoint and releases the ps, on the chief.

  A signal ends this function as it ends training: a restart finds the run unchanged.
  """
  try:
    checkpoint, evaluation = use_latest(directory, lambda path: (
      path, evaluate_checkpoint(
        program, path, options_lib.first_batch_size(options.batch_size), bad=bad_records)))
    outcome = part.outcome._replace(
      rolled_back=run.watch.rolled_back, evaluation=evaluation, global_step=evaluation.global_step,
      warning=part.loop.say_short(evaluation.global_step) if part.loop else "",
      checkpoint=checkpoint if options.checkpoint_dir else None)
  except Exception:
    run.release(failed=True)
    raise
  problems = part.problems
  report_part(run, problems)
  if problems:
    raise JobFailedError(problems, outcome)
  return outcome
