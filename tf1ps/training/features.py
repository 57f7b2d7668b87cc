"""Makes the hooks beside the steps of a worker's loop, from an ordered list of features.

Each feature is a function that takes the unfinished `Loop` and returns hooks. The order of
`FEATURES` is the order of the loop's hooks, which follow the session's own hooks. Each hook comes
after the hooks whose values it reads. A feature's docstring gives the reason for its place. A
feature hands a result to later features as an attribute of the loop.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import SCREEN_VARIABLE
from tf1ps.monitoring import StepTracer
from tf1ps.placement import format_load_table, make_load_table
from tf1ps.session import Membership
from tf1ps.training import (
  auto_steps,
  bounds,
  dynamic_ranges,
  epochs,
  execution,
  hints,
  job_summaries,
  parallel_steps,
  progress,
  remainder,
  staleness_policies,
  stall_watch,
  step_vote,
  stops,
  task_figures,
  traffic_report,
  trained_examples,
)
from tf1ps.training import options as options_lib
from tf1ps.training.counts import Counts, ExampleCounter
from tf1ps.training.outcome import Outcome
from tf1ps.training.step import Step

_log = logging.getLogger("tf1ps")


class Loop:
  """A worker's loop: its step, its ledger, and the results of its features.

  Attributes:
    step: the training step.
    shard: this worker's share of the data.
    run: this worker's membership of the run.
    options: the job's options.
    bad_records: counts the bad records that were left out.
    is_alone: whether the other workers have done their part, and the chief repeats lost steps.
    counts: the ledger.
    stops: the stops that the options request.
    train_op: the loop's fetch; it is empty if the hooks fetch the step.
    hooks: the hooks, in their order.
    execution, tracer, policies, vote, ranges, stalls, traffic: set by the features of these names.
      If a feature is off, its attribute is None, or [] for `ranges`.
  """

  def __init__(self, step: Step, shard, run: Membership, options: options_lib.Options, bad_records,
               epochs_before: int = 0, before: Optional["Loop"] = None):
    """Builds the features in the step's graph; the counts continue from the counts of `before`."""
    self.step, self.shard, self.run, self.options = step, shard, run, options
    self.bad_records, self.is_alone = bad_records, before is not None
    # A program's own hooks must see each step, so its runs make one step each.
    self._finds_steps = options.finds_run_steps and not step.program_hooks
    fetches = execution.Fetches(
      step, options.run_steps, dynamic_ranges.report_fetches(shard), self._finds_steps)
    self.train_op = [] if fetches.has_op else step.train_op
    self.counts = Counts(
      GlobalStepTracker(step.global_step, lambda: fetches.steps), fetches, epochs_before)
    if before is not None:
      self.counts.go_on(before.counts)
    self.stops = stops.Stops(options, self.counts, run.cluster.replica_index,
                             run.cluster.num_replicas, lambda: run.stop_reason)
    self.hooks: List[tf.train.SessionRunHook] = []
    for make in FEATURES:
      self.hooks += [hook for hook in make(self) if hook is not None]
    if run.is_chief and before is None:
      self._log_placement()

  def _log_placement(self):
    _log.info("%s", format_load_table(make_load_table()))
    texts = [self.step.hint]
    if self.options.partition_bytes is not None:
      texts.append(hints.of_shards(self.options.partition_bytes, max(1, len(self.run.cluster.ps))))
    for hint in texts:
      if hint:
        _log.info("hint: %s", hint)

  @property
  def has_gone_back(self) -> bool:
    """Whether the loop reached its end, but a restored step now lies before that end."""
    return self.stops.has_gone_back or not self.stops.is_reached and any(
      hook.has_gone_back for hook in self.ranges)

  @property
  def optional_variables(self) -> list:
    """The variables that a checkpoint may lack."""
    return [] if self.step.positions is None else self.step.positions.variables

  @property
  def _is_ended_by_hook(self) -> bool:
    return bool(self.step.program_hooks) and not self.stops.early.look() and not (
      self.counts.was_ended or self.counts.data_ended or self.stops.was_reached)

  def say_short(self, step: int) -> str:
    """Returns a warning if the data ended before the goal, or ""; `step` is the last global step.

    Call it on the chief when all workers have ended.
    """
    return "" if self._is_ended_by_hook else self.stops.say_short(
      step, self.counts.examples_before + trained_examples.examples_of_run(self.run, self.counts))

  def outcome(self, seconds: float) -> Outcome:
    """Returns this worker's outcome after `seconds` in the loop; ValueError if no batch came."""
    counts, reached, by_hook = self.counts, self.stops.was_reached, self._is_ended_by_hook
    if not (counts.steps or by_hook or counts.was_ended or reached or self.shard.is_dynamic):
      raise ValueError("the input gave no batch: the share of worker %d of %d, or in-graph the "
                       "share of another worker, is empty" % (self.shard.index, self.shard.count))
    reason = "a hook of the program requested the stop"
    if not by_hook:
      reason = self.stops.reason(
        [hook.is_done for hook in self.ranges],
        self.step.repeats is not None and self.step.repeats.all_went_through)
    return Outcome(
      counts.steps, counts.tracker.value, counts.examples, seconds, reason, counts.late,
      str(self.policies), None, self.run.members(), self.bad_records.skipped,
      *[hook.again for hook in self.ranges])._replace(
        traffic=self._say_traffic(seconds), rolled_back=self.run.watch.rolled_back)

  def _say_traffic(self, seconds):
    if self.traffic is None:
      return ""
    bound = bounds.say_bound(
      self.traffic.shares, self.options, seconds, self.traffic.steps,
      shares_host=len(self.run.cluster.tasks_on_this_host()) > 1)
    return ", ".join(part for part in (str(self.traffic), bound) if part)


def _execution(loop: Loop) -> list:
  """Decides how many steps a run makes; the hooks after it fetch for that number of steps.

  At the end of the data it counts the finished steps of an incomplete run before any other hook
  acts.
  """
  loop.execution = execution.Execution(
    loop.counts, loop.stops, loop.options.steps_in_flight, loop.step.partial)
  return [loop.execution]


def _tracer(loop: Loop) -> list:
  """Traces the run that Execution has chosen, and notes its end before other hooks work."""
  loop.tracer = None
  if loop.options.trace_steps is not None:
    loop.tracer = StepTracer(
      loop.counts.tracker, options_lib.parse_trace_steps(loop.options.trace_steps),
      loop.options.checkpoint_dir, loop.run.cluster.task.name)
  return [loop.tracer]


def _staleness(loop: Loop) -> list:
  """Counts gradients' ages, and delays the start (warm_up) before the hooks check for a stop."""
  loop.policies = staleness_policies.StalenessPolicies(
    loop.options, loop.step, loop.counts, loop.run, loop.is_alone)
  return loop.policies.first_hooks


def _examples(loop: Loop) -> list:
  """Counts examples, for the stops and the progress."""
  return [ExampleCounter(loop.counts, loop.run)]


def _stops(loop: Loop) -> list:
  """Requests the stop by the counts of this run, or because the evaluator asks for it.

  Where workers vote, `_of_program` passes the evaluator's request on as a vote.
  """
  return loop.stops.hooks


def _end_of_data(loop: Loop) -> list:
  """Notes why the data ended, and counts the remaining data; `_vote` does this by itself."""
  return [] if loop.step.vote is not None else [
    remainder.EndOfDataHook(loop.counts, loop.step.remainder)]


def _of_step(loop: Loop) -> list:
  """The step's own hooks join the rounds, or fill the staging area, in a new session."""
  return loop.step.hooks


def _vote(loop: Loop) -> list:
  """Reads a batch ahead of the step."""
  loop.vote = None
  if loop.step.vote is not None:
    loop.vote = step_vote.StepVote(loop.step.vote, loop.run, loop.counts, loop.stops.is_last)
  return [loop.vote]


def _positions(loop: Loop) -> list:
  """Restores the input before a thread draws a batch."""
  return [loop.step.positions]


def _repeats(loop: Loop) -> list:
  """Writes the earlier passes of the restored position into the rounds."""
  return [loop.step.repeats]


def _epochs(loop: Loop) -> list:
  """Keeps the finished epochs beside each checkpoint, when the data's end is noted."""
  if not loop.run.is_chief or not epochs.are_counted(loop.options):
    return []
  return [epochs.FinishedEpochs(
    loop.counts, loop.options.epochs, loop.stops, loop.optional_variables)]


def _trained_examples(loop: Loop) -> list:
  """Finds the examples before this run when the state is restored."""
  return [trained_examples.TrainedExamples(loop.run, loop.options, loop.counts)]


def _lead(loop: Loop) -> list:
  """Waits for slower workers after the step is counted."""
  return loop.policies.hooks


def _ranges(loop: Loop) -> list:
  """Begins the next pass when every hook before it has seen the end of the last pass."""
  options = loop.options
  loop.ranges = dynamic_ranges.make(
    loop.shard, loop.counts.fetches,
    waits=not options.is_synchronous and options.staleness.max_lead is None,
    is_over=loop.stops.is_reached_at)
  return loop.ranges


def _of_program(loop: Loop) -> list:
  """The program's own hooks; where workers vote, a request to stop becomes a vote."""
  hooks = list(loop.step.program_hooks)
  if loop.vote is None:
    return hooks
  return [step_vote.VotingHook(hook, loop.vote) for hook in [loop.stops.early, *hooks]]


def _threads(loop: Loop) -> list:
  """Starts threads, which draw batches as soon as there is a session."""
  step, options, threads = loop.step, loop.options, None
  if step.others:
    threads = parallel_steps.InGraphThreads(step.others, loop.counts, loop.stops, loop.tracer)
  elif options.steps_in_flight > 1:
    threads = parallel_steps.StepsInFlight(
      loop.execution, loop.counts, loop.stops, options.steps_in_flight,
      None if step.positions is None else step.positions.add, loop.tracer)
  if step.positions is not None:
    step.positions.follow(
      lambda: options.gradient_accumulation_steps * loop.counts.fetches.steps,
      threads.quiet if options.steps_in_flight > 1 else None)
  return [threads]


def _stalls(loop: Loop) -> list:
  """Reports stalls; like the features from here to `_summaries`, it only reports."""
  loop.stalls = stall_watch.StallWatch(
    loop.run, *loop.options.stall, loop.counts, loop.step.hooks)
  return [loop.stalls]


def _traffic(loop: Loop) -> list:
  """Traces runs and reads the bytes of a step, on the chief."""
  options, fetches = loop.options, loop.counts.fetches
  loop.traffic = None
  if loop.run.is_chief:
    loop.traffic = traffic_report.TrafficReport(
      loop.counts.tracker, [fetches.fetch(name, fetches.most) for name in ("op", "loss")],
      loop.run.cluster.task.name, loop.shard.batch_size, lambda: fetches.most,
      options.checkpoint_dir)
  return [loop.traffic]


def _progress(loop: Loop) -> list:
  """Prints the progress on the chief, and on every worker for the launcher's screen."""
  options, replicas = loop.options, loop.run.cluster.num_replicas
  if not loop.run.is_chief and SCREEN_VARIABLE not in os.environ:
    return []
  return [progress.Progress(
    loop.counts, options.steps, share=options_lib.share_of(options, replicas),
    last_example=options.examples, is_chief=loop.run.is_chief,
    find_last_example=functools.partial(
      epochs.total_examples, shard=loop.shard, options=options, replicas=replicas))]


def _summaries(loop: Loop) -> list:
  """Writes the figures of the job for TensorBoard, on the chief."""
  if not loop.run.is_chief or not loop.options.checkpoint_dir:
    return []
  return [job_summaries.JobSummaries(loop.counts.tracker, loop.run, loop.options)]


def _auto_steps(loop: Loop) -> list:
  """Measures whole runs, with the work of all hooks; adds copies of the step between two runs."""
  return [] if not loop._finds_steps else [
    auto_steps.AutoSteps(loop.counts.fetches, loop.stops.find_steps_left)]


def _figures(loop: Loop) -> list:
  """Has the heartbeat send the counts of the other features; makes no hook."""
  task_figures.TaskFigures(
    loop.run, loop.counts, loop.policies, loop.traffic, loop.stalls, loop.bad_records)
  return []


FEATURES = (
  _execution, _tracer, _staleness, _examples, _stops, _end_of_data, _of_step, _vote, _positions,
  _repeats, _epochs, _trained_examples, _lead, _ranges, _of_program, _threads, _stalls, _traffic,
  _progress, _summaries, _auto_steps, _figures)
