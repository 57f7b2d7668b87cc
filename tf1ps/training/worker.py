"""A worker's training, from its start to its end. Read this file first.

1. The worker joins the run: its heartbeat begins. The chief tries the evaluation on one batch, so
   that a mistake there shows before training.
2. It builds its step (build.py) and the hooks beside it (`_Training`).
3. It opens a session and runs steps until a stop.
4. At the end its hooks leave. Other workers report their end. The chief waits for them and saves.
   If a ps is lost before that, the steps since the last checkpoint are lost with it: then the chief
   of an asynchronous job opens another session (2, 3), and makes them again.
5. The chief evaluates the last checkpoint and releases the ps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from typing import Callable, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import (
  CheckpointSaver,
  GlobalStepTracker,
  global_step_of_checkpoint,
  latest_checkpoint,
  make_saver,
  moving_averages_here,
  use_latest,
)
from tf1ps.cluster import Server, SignalWatch, TaskUnavailableError, raise_exit
from tf1ps.compat import SCREEN_VARIABLE, TIMING, keep_directory, make_directory, new_graph
from tf1ps.monitoring import StepTracer
from tf1ps.pipeline import use_bad_records
from tf1ps.placement import format_load_table, make_load_table
from tf1ps.program import Program, evaluate, summarize_evaluation, try_evaluation
from tf1ps.session import (
  ENDED_BY_SIGNAL,
  Interval,
  JobFailedError,
  Membership,
  PartDoneError,
  is_deserted,
  open_session,
)
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED, RUN_ENDED, RunFile
from tf1ps.training import (
  bounds,
  build,
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
  step_evaluation,
  step_vote,
  stops,
  summary_image,
  task_figures,
  traffic_report,
  trained_examples,
)
from tf1ps.training import options as options_lib
from tf1ps.training.outcome import Outcome
from tf1ps.training.step import Step

_log = logging.getLogger("tf1ps")


def train(program: Program, server: Server, options: options_lib.Options,
          on_session: Callable[[], None] = lambda: None, step_log: Optional[str] = None) -> Outcome:
  """Trains a program as one worker of a job, to the job's end.

  Args:
    program: the user's program.
    server: this task's running server.
    options: the job's options.
    on_session: called when the first session is open, before the first step.
    step_log: the file in which each run of the loop is noted (step_log.py), or None.

  Returns:
    This worker's `Outcome`.

  Raises:
    ValueError: the options cannot work together.
    JobFailedError: this worker did its part, another one did not.
    NanLossError, and the errors of `MonitoredTrainingSession`.
  """
  options_lib.check_options(options)
  if _is_over(server, options):
    return _outcome_of_nothing(_say_over(options))
  with _join(server, options) as run, _directory(run, options) as directory:
    run.goal = _goal(options)
    epochs_before = epochs.finished_before(run, options)
    if epochs_before:
      _log.info("before this start, the job went through its data %d times, of --epochs=%d",
                epochs_before, options.epochs)
    bad_records = options_lib.bad_records_of(options)
    if run.is_chief:
      try_evaluation(program, options_lib.first_batch_size(options.batch_size), options.variables,
                     bad_records)
    part = None
    try:
      while part is None or part.makes_lost_steps:
        part = _train_part(program, run, options, directory, epochs_before, bad_records, step_log,
                           on_session, part)
    except PartDoneError as done:
      return _outcome_of_nothing(str(done))
    except TaskUnavailableError:
      if not _is_over(server, options):  # it may have ended meanwhile
        raise
      return _outcome_of_nothing(_say_over(options))
    if not run.is_chief:
      return part.outcome
    return _finish(program, run, options, directory, part, bad_records)


class _Part(NamedTuple):
  """A worker's training, from the opening of its session to the close."""

  training: "_Training"
  outcome: Outcome
  problems: List[str]  # a sentence for each other worker that did not do its part
  evaluations: Optional[step_evaluation.StepEvaluation]
  makes_lost_steps: bool  # whether the chief makes steps again that a ps took with it at the end


def _train_part(program, run: Membership, options: options_lib.Options, directory, epochs_before,
                bad_records, step_log, on_session, before: Optional[_Part]) -> _Part:
  """Trains until a stop, and to the close of the session.

  `before` is the part before this one. Its session is still open for TensorFlow: the close would
  keep those of this part waiting.
  """
  left = options
  if epochs_before:
    left = options._replace(epochs=max(options.epochs - epochs_before, 1))
  shard = options_lib.shard_of(left, run.cluster.replica_index, run.cluster.num_replicas)
  if before is None:
    evaluations = _step_evaluation(program, run, options, directory, bad_records)
  else:
    evaluations = before.evaluations
    options = options._replace(start_timeout=max(options.start_timeout, run.recovery_timeout))
  with new_graph():
    use_bad_records(bad_records)
    step = build.build_step(program, run.cluster, shard, left, run.record.container)
    training = _Training(step, shard, run, options, epochs_before, step_log,
                         lambda: bad_records.skipped, before and before.training)
    with training.stalls, evaluations or contextlib.nullcontext(), \
        _open_session(training, run, options, directory, evaluations) as session:
      began = time.monotonic()
      on_session()
      while not session.should_stop():
        session.run(training.train_op)
      training.stops.end_loop()
    outcome = training.outcome(time.monotonic() - began, bad_records.skipped)
    if before is not None:
      outcome = outcome._replace(seconds=before.outcome.seconds + outcome.seconds)
  problems, step = session.lifecycle.problems, training.tracker.value
  makes_lost_steps = (
    training.has_gone_back and run.is_chief and not problems
    and _can_train_alone(options, run.cluster)
    # A ps that dies in each save would let it go on for ever.
    and (before is None or step > before.training.tracker.value))
  if makes_lost_steps:
    _log.warning("a ps was lost when training had ended, and the last steps with it: the chief "
                 "makes them again, from step %d", step)
    if evaluations is not None:
      evaluations.begin_again()
  elif training.has_gone_back:
    run.goal = ""  # the job that is started again makes the steps that are lost
  return _Part(training, outcome, problems, evaluations, makes_lost_steps)


def _can_train_alone(options, cluster) -> bool:
  """Whether the chief can make a step when the other workers have left."""
  return (options.replication == options_lib.IN_GRAPH or not options.is_synchronous
          or cluster.num_replicas == 1)


def _goal(options) -> str:
  """Returns what was asked for, as flags; "" if nothing says when the job ends."""
  given = [(name, getattr(options, name)) for name in ("steps", "epochs", "examples")]
  return " ".join("--%s=%s" % each for each in given if each[1] is not None)


def _is_over(server, options) -> bool:
  """Whether the job had ended before a scheduler started this task again.

  The status file says that the same job has ended, and no task that a job would need is there.
  """
  status = RunFile(options.checkpoint_dir).read() if options.checkpoint_dir else None
  if status is None or status.state != RUN_ENDED or not status.goal or (
      status.goal != _goal(options)):
    return False
  return is_deserted(server.cluster)


def _say_over(options) -> str:
  return "the run in --checkpoint_dir=%s has ended with %s" % (
    options.checkpoint_dir, _goal(options))


def _outcome_of_nothing(reason: str) -> Outcome:
  _log.info("%s", reason)
  return Outcome(steps=0, global_step=-1, examples=0, seconds=0.0, reason=reason, late=0,
                 staleness="", evaluation=None, members=[])


@contextlib.contextmanager
def _join(server, options):
  """Yields this worker's membership of the run; reports an error that no session has reported.

  Before and after the session, which has its own watch, a signal ends the main thread and is
  reported from here.
  """
  run, signals = Membership(server.record, options.checkpoint_dir), []
  reported, lock = [], threading.Lock()

  def leave(number, frame):
    signals.append(number)
    raise_exit(number, frame)

  def report(number):
    with lock:  # the watch's thread or this one; the other waits until the first has reported
      if not reported:
        reported.append(run.report(MEMBER_FAILED, ENDED_BY_SIGNAL + str(number),
                                   limit=TIMING.report_limit_after_signal))

  with SignalWatch(report, TIMING.force_exit_limit, handler=leave):
    if run.is_chief:
      run.heartbeat.set(epochs=epochs.read_finished(options))
    run.start()
    try:
      yield run
    except JobFailedError:
      raise
    except BaseException as error:
      if signals:
        report(signals[0])  # the watch may not have done so yet
        # C++ on the way to here, or the program, may have made another error of it.
        raise_exit(signals[0], None)
      if run.heartbeat.get("state") != MEMBER_FAILED:
        run.report(MEMBER_FAILED, _reason(error), limit=TIMING.report_limit_after_failure)
      raise
    finally:
      run.stop()


def _reason(error):
  if isinstance(error, SystemExit):
    return "the program ended Python with %r" % (error.code,)
  return "%s: %s" % (type(error).__name__, error)


@contextlib.contextmanager
def _directory(run, options):
  """Yields the directory of the last checkpoint.

  Without --checkpoint_dir the chief has a temporary one, for the evaluation. It is kept if an error
  ends the job after its training.
  """
  if options.checkpoint_dir or not run.is_chief:
    yield options.checkpoint_dir
    return
  directory = make_directory("model")
  _log.info("without --checkpoint_dir, the model is in %s until it is evaluated at the end, and "
            "then deleted", directory)
  try:
    yield directory
  except Exception:
    trained = latest_checkpoint(directory)
    if trained is None or not global_step_of_checkpoint(trained):
      shutil.rmtree(directory, ignore_errors=True)
    else:
      keep_directory(directory)
      _log.error("the trained model is kept in %s, as the job failed", trained)
    raise
  except BaseException:  # a signal
    shutil.rmtree(directory, ignore_errors=True)
    raise
  shutil.rmtree(directory, ignore_errors=True)


class _Training:
  """The hooks beside the steps of one worker, and their operations in its graph.

  Attributes:
    train_op: the loop's fetch; it is empty if a run makes several steps, which `execution` fetches.
    tracker: tracks the global step.
    counter: counts the examples.
    stalls: watches for a loop that makes no step.
    stops: the stops of the loop.
  """

  def __init__(self, step: Step, shard, run: Membership, options: options_lib.Options,
               epochs_before: int = 0, step_log: Optional[str] = None,
               count_skipped: Callable[[], int] = lambda: 0,
               before: Optional["_Training"] = None):
    """Builds them; the counts of steps and examples begin where those of `before` ended."""
    cluster = run.cluster
    self._shard, self._run, self._options, self._step = shard, run, options, step
    self.train_op = [] if options.steps_per_execution > 1 else step.train_op
    fetches = execution.Fetches(
      step, options.steps_per_execution, dynamic_ranges.report_fetches(shard))
    self.tracker = GlobalStepTracker(step.global_step, lambda: fetches.steps)
    self.counter = progress.ExampleCounter(fetches, lambda: run.examples_before)
    self.stops = stops.Stops(
      options, self.tracker, self.counter, cluster.replica_index, cluster.num_replicas,
      epochs_before, lambda: self._examples.before, lambda: run.stop_reason)
    self._examples = trained_examples.TrainedExamples(run, options, self.counter)
    self._epochs = None
    if run.is_chief and epochs.are_counted(options):
      self._epochs = epochs.FinishedEpochs(
        epochs_before, options.epochs, self.stops, self.optional_variables,
        lambda: self._vote is not None and (self._vote.data_ended or self._vote.was_ended))
    self._execution = execution.Execution(
      fetches, self.tracker, self.counter, self.stops, options.steps_in_flight, step.partial)
    self._tracer = None
    if options.trace_steps is not None:
      self._tracer = StepTracer(
        self.tracker, options_lib.parse_trace_steps(options.trace_steps), options.checkpoint_dir,
        cluster.task.name)
    self._policies = staleness_policies.StalenessPolicies(
      options, step, fetches, self.tracker, run, self.counter, is_alone=before is not None)
    self._vote = None if step.vote is None else step_vote.StepVote(
      step.vote, run, self.stops.is_last)
    self._end_of_data = remainder.EndOfDataHook(step.remainder)
    self._ranges = dynamic_ranges.make(
      shard, fetches, waits=not options.is_synchronous and options.staleness.max_lead is None,
      is_over=self.stops.is_reached_at)
    self._threads = self._make_threads(fetches)
    if step.positions is not None:
      step.positions.follow(lambda: options.gradient_accumulation_steps * fetches.steps,
                            self._threads.quiet if options.steps_in_flight > 1 else None)
    self._traffic = self._make_traffic(fetches) if run.is_chief else None
    self._notes = None if step_log is None else progress.StepNotes(
      step_log, self.tracker, self.counter, self._execution, self._threads)
    self._summaries = None
    if run.is_chief and options.checkpoint_dir:
      self._summaries = job_summaries.JobSummaries(self.tracker, run, options)
    self.stalls = stall_watch.StallWatch(
      run, options.stall_after, options.on_stall == options_lib.STALL_FAIL, self._count_all,
      step.hooks)
    self._figures = task_figures.TaskFigures(
      run, self._count_steps, self.counter, self._execution, self._policies, self._traffic,
      self.stalls, count_skipped)
    if before is not None:
      self.tracker.add_steps(before._count_steps())
      self.counter.count_on(before.counter)
    elif run.is_chief:
      _log.info("%s", format_load_table(make_load_table()))
      self._log_hints()

  def _log_hints(self):
    found = [self._step.hint]
    if self._options.partition_bytes is not None:
      found.append(hints.of_shards(
        self._options.partition_bytes, max(1, len(self._run.cluster.ps))))
    for hint in found:
      if hint:
        _log.info("hint: %s", hint)

  def _make_threads(self, fetches) -> Optional[parallel_steps.InGraphThreads]:
    """Returns the threads that make steps beside the loop, or None."""
    step, options = self._step, self._options
    if step.others:
      return parallel_steps.InGraphThreads(
        step.others, self.tracker, self.counter, self.stops, self._tracer)
    if options.steps_in_flight == 1:
      return None
    return parallel_steps.StepsInFlight(
      fetches, self._execution, self.tracker, self.counter, self.stops,
      options.steps_in_flight, step.positions.add if step.positions is not None else None,
      self._tracer)

  def _make_traffic(self, fetches):
    options = self._options
    return traffic_report.TrafficReport(
      self.tracker, [fetches.fetch(name, options.steps_per_execution) for name in ("op", "loss")],
      self._run.cluster.task.name, self._shard.batch_size, options.steps_per_execution,
      options.checkpoint_dir)

  def _say_traffic(self, seconds) -> str:
    if self._traffic is None:
      return ""
    bound = bounds.say_bound(self._traffic.shares, self._options, seconds)
    return ", ".join(part for part in (str(self._traffic), bound) if part)

  def _count_all(self) -> tuple:
    """Returns values of which one changes with each step."""
    return (self.tracker.own_steps, self.counter.examples, self.counter.late,
            0 if self._threads is None else self._threads.steps)

  def _count_steps(self) -> int:
    """Returns the steps of this process."""
    return self.tracker.own_steps + (0 if self._threads is None else self._threads.steps)

  @property
  def has_gone_back(self) -> bool:
    """Whether the end was reached when the loop ended, and is not reached any more."""
    return self.stops.has_gone_back or not self.stops.is_reached and any(
      hook.has_gone_back for hook in self._ranges)

  @property
  def optional_variables(self) -> list:
    """The variables that a checkpoint may lack."""
    return [] if self._step.positions is None else self._step.positions.variables

  @property
  def ends_by_vote(self) -> bool:
    """Whether all workers end the loop together."""
    return self._vote is not None

  def hooks(self) -> List[tf.train.SessionRunHook]:
    """Returns the loop's hooks in their order: each stands behind the hooks whose values it reads.

    Execution chooses a run's steps first, examples are counted before a stop reads their number,
    and the input's position is restored before threads draw batches.
    """
    found = [self._execution, self._tracer, *self._policies.first_hooks, self.counter,
             *self.stops.hooks, self._end_of_data, *self._step.hooks, self._vote,
             self._step.positions, self._step.repeats, self._epochs, self._examples,
             *self._policies.hooks, *self._ranges, *self._program_hooks(), self._threads,
             self.stalls, self._traffic, self._notes]
    if self._run.is_chief or SCREEN_VARIABLE in os.environ:
      shown = progress.Progress(
        self.tracker, self.counter, self._execution, self._options.steps,
        share=options_lib.share_of(self._options, self._run.cluster.num_replicas),
        others=self._threads, last_example=self._options.examples, is_chief=self._run.is_chief,
        before=lambda: self._examples.before,
        find_last_example=lambda session: epochs.total_examples(
          session, self._shard, self._options, self._run.cluster.num_replicas))
      found.append(shown)
      if self._run.is_chief and self._options.summary_image:
        found.append(summary_image.SummaryImage(
          self._options.summary_image, self.tracker, shown))
    found.append(self._summaries)
    return [hook for hook in found if hook is not None]

  def _program_hooks(self) -> List[tf.train.SessionRunHook]:
    hooks = self._step.program_hooks
    if self._vote is not None:
      hooks = [self.stops.early, *hooks]
    return list(hooks) if self._vote is None else [
      step_vote.VotingHook(hook, self._vote) for hook in hooks]

  def outcome(self, seconds: float, skipped: int) -> Outcome:
    """Returns this worker's outcome after `seconds` in the loop; ValueError if no batch came."""
    steps = self._count_steps()
    end = self._end_of_data if self._vote is None else self._vote
    by_hook = bool(self._step.program_hooks) and not self.stops.early.look() and not (
      end.was_ended or end.data_ended or self.stops.was_reached)
    if not (steps or by_hook or end.was_ended or self.stops.was_reached
            or self._shard.is_dynamic):
      raise ValueError("the input gave no batch: the share of worker %d of %d, or in-graph the "
                       "share of another worker, is empty" % (self._shard.index, self._shard.count))
    return Outcome(
      steps, self.tracker.value, self.counter.examples, seconds,
      "a hook of the program requested the stop" if by_hook else self.stops.reason(
        end.was_ended, end.left, [hook.is_done for hook in self._ranges],
        self._step.repeats is not None and self._step.repeats.all_went_through),
      self.counter.late, str(self._policies), None, self._run.members(), skipped,
      *[hook.again for hook in self._ranges])._replace(
        traffic=self._say_traffic(seconds),
        rolled_back=self._run.rolled_back)


def _step_evaluation(program, run, options, directory, bad_records):
  """Returns the listener of --eval_steps; None without the flag, or in another worker."""
  if options.eval_steps is None or not run.is_chief:
    return None

  def summarize(found):
    if options.checkpoint_dir:
      summarize_evaluation(directory, found)

  return step_evaluation.StepEvaluation(
    lambda path, gives_up: evaluate(
      program, path, options_lib.first_batch_size(options.batch_size), options.variables,
      interrupted=gives_up, bad=bad_records), directory, summarize)


def _open_session(training: _Training, run: Membership, options, directory, evaluations):
  scaffold = tf.train.Scaffold(
    saver=make_saver(training.optional_variables, options.keep_checkpoint_max,
                     moving_averages_here() if options.moving_average_decay else ()))
  hooks, listeners = training.hooks(), [] if evaluations is None else [evaluations]
  if run.is_chief and not options.checkpoint_dir:  # for the evaluation at the end
    hooks.append(CheckpointSaver(
      training.tracker, directory, scaffold, None if options.eval_steps else 1e9,
      options.eval_steps, save_graph_def=False, listeners=listeners))
  steps = options.save_checkpoints_steps or options.eval_steps
  save = Interval(None, steps) if steps else Interval(options.save_checkpoints_secs, None)
  return open_session(
    run, training.tracker, hooks, options.checkpoint_dir, scaffold, options.config, save,
    Interval(steps=options.save_summary_steps), is_chief=run.is_chief,
    shared_options=options_lib.shared_by_workers(options), start_timeout=options.start_timeout,
    end_timeout=options.end_timeout, releases=False,
    count_examples=lambda: training.counter.examples, ends_by_vote=training.ends_by_vote,
    ps_recovery=options.ps_recovery, saver_listeners=listeners)


def _finish(program, run: Membership, options, directory, part: _Part, bad_records) -> Outcome:
  """Evaluates the last checkpoint and releases the ps, on the chief.

  A signal ends this as it ends training: a restart finds the run as it is.
  """
  try:
    checkpoint, evaluation = use_latest(directory, lambda path: (
      path, part.evaluations and part.evaluations.result_of(path) or evaluate(
        program, path, options_lib.first_batch_size(options.batch_size),
        options.variables, bad=bad_records)))
  except Exception:
    run.release(failed=True)
    raise
  problems = part.problems
  outcome = part.outcome._replace(
    rolled_back=run.rolled_back, evaluation=evaluation, global_step=evaluation.global_step,
    checkpoint=checkpoint if options.checkpoint_dir else None)
  run.release(failed=bool(problems), reason="; ".join(problems))
  run.report(MEMBER_FAILED if problems else MEMBER_DONE, "; ".join(problems))
  if problems:
    raise JobFailedError(problems, outcome)
  return outcome
