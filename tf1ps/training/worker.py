"""A worker's whole life: its graph, its loop, its end.

1. The heartbeat begins, the graph is built, the chief prints where the variables lie.
2. A MonitoredTrainingSession of ours runs one update after the other until a stop.
3. A worker that is not the chief reports and leaves. The chief, whose session waited for the others
   and saved after the last update, evaluates the last checkpoint and releases the ps.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from typing import List, Union

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import (
  CheckpointSaver,
  GlobalStepTracker,
  InputPositions,
  latest_checkpoint,
  make_saver,
)
from tf1ps.cluster import Server, record_of
from tf1ps.compat import TIMING
from tf1ps.pipeline import use_bad_records
from tf1ps.placement import format_load_table, make_load_table
from tf1ps.program import Program, evaluate
from tf1ps.replication import is_end_of_replicas
from tf1ps.session import MonitoredTrainingSession, Participation
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED
from tf1ps.training import (
  dynamic_ranges,
  in_graph_threads,
  lockstep,
  remainder,
  replicas,
  staleness_policies,
  step_runs,
  steps_in_flight,
  traffic_report,
)
from tf1ps.training import options as options_lib
from tf1ps.training import progress as progress_lib
from tf1ps.training import stops as stops_lib
from tf1ps.training.outcome import JobFailedError, Outcome

_log = logging.getLogger("tf1ps")


def train(program: Program, server: Server,
          options: options_lib.Options) -> Outcome:
  """Trains a program as one worker of a job, to the job's end.

  Args:
    program: the user's.
    server: this task's, started.
    options: see `options.Options`.

  Returns:
    What this worker did.

  Raises:
    ValueError: options that cannot work together.
    JobFailedError: this worker did its part, another did not.
    NanLossError, and what `MonitoredTrainingSession` raises.
  """
  options_lib.check_options(options)
  record = record_of(server.target)
  part = Participation(record, options.checkpoint_dir)
  part.start()
  try:
    with contextlib.ExitStack() as stack:
      directory = options.checkpoint_dir
      if part.is_chief and not directory:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tf1ps-"))
      with tf.Graph().as_default():
        worker = _Worker(program, record, part, options, directory)
        outcome = worker.train()
      return worker.finish(outcome) if part.is_chief else outcome
  except JobFailedError:
    raise
  except BaseException as error:
    # What happens before the session is there, or after it has gone, is reported here.
    if not isinstance(error, SystemExit) and part.heartbeat.get("state") != MEMBER_FAILED:
      part.report(MEMBER_FAILED, "%s: %s" % (type(error).__name__, error),
                  limit=TIMING.report_limit_after_failure)
    raise
  finally:
    part.stop()


class _Worker:
  """One worker's training; built inside of its graph."""

  def __init__(self, program, record, part, options, directory):
    self._program = program
    self._part = part
    self._options = options
    self._directory = directory
    self._problems: List[str] = []
    self._was_ended = False  # by another worker
    self._left: Union[None, str, remainder.Left] = None  # of the data, then
    self._target = record.target
    cluster = part.cluster
    self._shard = options_lib.shard_of(options, cluster.replica_index, cluster.num_replicas)
    self._bad = options_lib.bad_records_of(options)
    use_bad_records(self._bad)
    self._replica = replicas.build_replica(
      program, cluster, self._shard, options, record.container)
    # Saved by the chief onto its own disk: the ps's may be another machine's.
    positions = self._hook_of(InputPositions)
    self._scaffold = tf.train.Scaffold(saver=make_saver(
      [] if positions is None else positions.variables, options.keep_checkpoint_max))
    self._lockstep = self._hook_of(lockstep.Lockstep)
    self._threads = self._hook_of(in_graph_threads.InGraphThreads)  # or of steps in flight
    self._tracker = GlobalStepTracker()
    result = self._replica.round_result
    if result is not None:
      self._tracker.come_along(result.global_step)
    self._runs = step_runs.StepRuns(
      self._replica, self._tracker, options.steps_per_execution,
      dynamic_ranges.report_fetches(self._shard))
    self._counter = progress_lib.ExampleCounter(
      self._replica.batch_examples, lambda: part.examples_before,
      result.taken if result is not None else self._replica.taken, self._several)
    self._stops = stops_lib.Stops(
      options, self._tracker, self._counter, cluster.replica_index, cluster.num_replicas)
    self._ranges = dynamic_ranges.make(
      self._shard, self._replica.batch_examples,
      waits=not options.is_synchronous and options.max_lead is None,
      is_over=self._stops.is_reached_at, runs=self._several)
    self._policies = staleness_policies.StalenessPolicies(
      options, self._replica, self._tracker, part, self._several, self._counter)
    self._runs.connect(self._counter, self._stops, options.steps_in_flight)
    if positions is not None:
      positions.steps_of_run = lambda: options.gradient_accumulation_steps * self._runs.steps
    if options.steps_in_flight > 1:
      self._threads = steps_in_flight.StepsInFlight(
        self._runs, options.steps_in_flight, tf.train.get_global_step())
      if positions is not None:
        positions.quiet, self._threads.on_drawn = self._threads.quiet, positions.add
    self._traffic = None if not part.is_chief else traffic_report.TrafficReport(
      self._tracker,
      [self._runs.fetch(name, options.steps_per_execution) for name in ("op", "loss")],
      cluster.task.name, self._shard.batch_size, options.steps_per_execution,
      options.checkpoint_dir)
    if part.is_chief:
      _log.info("%s", format_load_table(make_load_table()))

  @property
  def _several(self):  # who says what to fetch of a run; None: each run is one step
    return self._runs if self._options.steps_per_execution > 1 else None

  def _hook_of(self, kind):  # or None
    return next((hook for hook in self._replica.hooks if isinstance(hook, kind)), None)

  def train(self) -> Outcome:
    part, options = self._part, self._options
    hooks = self._hooks()
    if part.is_chief and not options.checkpoint_dir:
      # What is evaluated at the end.
      hooks.append(CheckpointSaver(
        self._tracker, self._directory, self._scaffold, save_secs=1e9, save_graph_def=False))
    session = MonitoredTrainingSession(
      master=self._target, is_chief=part.is_chief, checkpoint_dir=options.checkpoint_dir,
      scaffold=self._scaffold, hooks=hooks, config=options.config,
      save_checkpoint_secs=(
        None if options.save_checkpoints_steps else options.save_checkpoints_secs),
      save_checkpoint_steps=options.save_checkpoints_steps,
      save_summaries_steps=options.save_summary_steps, log_step_count_steps=None,
      start_timeout=options.start_timeout, end_timeout=options.end_timeout,
      participation=part, tracker=self._tracker)
    session.life.examples = lambda: self._counter.examples
    self._policies.watch(session.life)
    if self._lockstep is not None:
      self._lockstep.watch(session.life)
    began = time.monotonic()
    with session:
      while not session.should_stop():
        try:
          session.run([])  # what its hooks ask for: the first of them the steps
        except tf.errors.OutOfRangeError as error:
          self._was_ended = is_end_of_replicas(error)
          if self._was_ended and self._replica.remainder is not None:
            self._left = session.call_inside(self._replica.remainder.count)
          if self._threads is not None:
            self._threads.run_out(session)
            self._threads.finish()
          raise
        self._runs.check_losses(session)
      if self._threads is not None:
        self._threads.finish()
    self._problems = session.life.problems
    steps = self._tracker.own_steps
    if self._lockstep is not None:
      self._was_ended, self._left = self._lockstep.was_ended, self._lockstep.left
    if self._threads is not None:
      steps += self._threads.steps
    if not (steps or self._was_ended or self._stops.is_reached or self._shard.is_dynamic):
      raise ValueError("no batch came: the share of worker %d of %d, or in-graph that of another "
                       "one, is empty" % (self._shard.index, self._shard.count))
    outcome = Outcome(
      steps, self._tracker.value, self._counter.examples, time.monotonic() - began,
      self._stops.reason(self._was_ended, self._left, [hook.is_done for hook in self._ranges]),
      self._counter.late, str(self._policies),
      None, part.heartbeat.members(), self._bad.skipped, *[hook.again for hook in self._ranges])
    return outcome._replace(traffic=str(self._traffic)) if part.is_chief else outcome

  def _hooks(self):
    options, part, replica, policies = self._options, self._part, self._replica, self._policies
    hooks = [self._runs, *policies.first_hooks, self._counter, *self._stops.hooks, *replica.hooks,
             *policies.hooks, *self._ranges]
    if self._lockstep is not None:
      self._lockstep.connect(part, self._stops.is_last)
    if self._threads is not None:
      self._threads.connect(self._tracker, self._counter, self._stops)
      if self._threads not in hooks:
        hooks.append(self._threads)
    if part.is_chief:
      hooks.append(self._traffic)
      hooks.append(progress_lib.Progress(
        self._tracker, self._counter, replica.loss, options.steps, share=options_lib.share_of(
          options, part.cluster.num_replicas), runs=self._runs, others=self._threads))
    return hooks

  def finish(self, outcome: Outcome) -> Outcome:
    """The chief's: evaluates the last checkpoint and releases the ps."""
    try:
      evaluation = evaluate(
        self._program, latest_checkpoint(self._directory), self._options.batch_size,
        self._options.variables, bad=self._bad)
    except BaseException:
      self._part.release(failed=True)
      raise
    outcome = outcome._replace(evaluation=evaluation, global_step=evaluation.global_step)
    self._part.release()
    self._part.report(MEMBER_DONE, "")
    if self._problems:
      raise JobFailedError(self._problems, outcome)
    return outcome
