"""The evaluator: follows the checkpoints of a run, and never connects to its cluster.

It reads two files of the checkpoint directory: the state file, which lists the checkpoints, and the
run's status file, which the chief rewrites every few seconds. It repeats these steps:

1. It reads the status file. The run is alive once the content of the file has changed since the
   start of the evaluator. The content at the start may come from an older run.
2. It evaluates the listed checkpoints that are new, the newest first. Of the checkpoints that are
   listed at its first start it evaluates only the newest. A later start knows which checkpoints
   were evaluated (evaluator_memory.py).
3. It may keep the best checkpoint (best_checkpoint.py), and ask for the end of a run that no longer
   improves: it writes a small file, which the chief looks for.
4. It ends when the run has ended, when the status file has not changed for too long, or when no run
   has appeared in time. Before it ends, it evaluates the last checkpoint if that is still to do.

All times are measured by the clock of this process, because clocks of two machines may differ.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Callable, List, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import (
  DamagedCheckpointError,
  listed_checkpoints,
  use_latest,
  verify_checkpoint,
)
from tf1ps.compat import EXIT_FAILED, TIMING
from tf1ps.pipeline import BadRecords
from tf1ps.program import best_checkpoint, evaluation, evaluator_memory, variable_kind
from tf1ps.program.contract import Program
from tf1ps.program.metric_goals import EarlyStopping, MetricGoal
from tf1ps.session import flush_summaries, write_summary
from tf1ps.state import RUN_ENDED, RUN_RUNNING, RunFile, StopFile

_log = logging.getLogger("tf1ps")

SUMMARIES = "eval"  # the folder in the checkpoint directory


class EvaluatorOutcome(NamedTuple):
  """The end of an evaluator."""

  evaluations: int  # the number of checkpoints that were evaluated
  last: Optional[evaluation.Evaluation]  # of the newest checkpoint that was evaluated
  reason: str  # why the evaluator ended
  code: int  # its exit code: 0 if the run did all that was asked for and was evaluated


def follow_checkpoints(
  program: Program,
  checkpoint_dir: str,
  heartbeat_timeout: float,
  start_timeout: float,
  batch_size: int,
  variables: str = variable_kind.RESOURCE,
  config: Optional[tf.ConfigProto] = None,
  interrupted: Optional[Callable[[], bool]] = None,
  look_every: float = 1.0,
  bad: Optional[BadRecords] = None,
  once: bool = False,
  keep_best: Optional[MetricGoal] = None,
  early_stopping: Optional[EarlyStopping] = None,
  on_evaluation: Callable[[int, evaluation.Evaluation], None] = lambda count, found: None,
) -> EvaluatorOutcome:
  """Evaluates the checkpoints of a run until it ends.

  It writes summaries of the metrics to the folder "eval" in the checkpoint directory.

  Args:
    program: the program.
    checkpoint_dir: the run's checkpoint directory; it need not exist yet.
    heartbeat_timeout: seconds without a change of the status file after which the run is lost.
    start_timeout: seconds within which a run must appear.
    batch_size: examples in a batch.
    variables: the kind of the variables, "resource" or "ref".
    config: the config of the sessions.
    interrupted: called several times per second; the evaluator ends when it returns True.
    look_every: seconds between two looks at the directory.
    bad: the policy for bad records. By default a bad record is an error.
    once: whether to evaluate the latest checkpoint alone, without waiting for a run.
    keep_best: the metric whose best checkpoint is kept in the folder "best" of the directory.
    early_stopping: when to ask for the end of the run.
    on_evaluation: called with the number of evaluations and the newest one after each.

  Returns:
    The outcome. Its code is 0 if the run has ended well. This includes a run that ended before the
    evaluator started, if no other run has appeared. With `once` it is 0 if there was a checkpoint.
    Otherwise the code is 1.

  Raises:
    CheckpointError: a checkpoint does not fit the program, or at the end none can be read.
    EvaluationError: the program lacks a metric; or see `evaluate`.
    ProgramError, ModelSpecError: see `evaluate`.
  """
  for name, value in (("heartbeat_timeout", heartbeat_timeout), ("start_timeout", start_timeout),
                      ("look_every", look_every)):
    if not value > 0:
      raise ValueError(f"{name} must be above 0 seconds, got {value}")
  is_interrupted = interrupted or (lambda: False)
  watch = RunWatch(checkpoint_dir, heartbeat_timeout, start_timeout)
  _check_metrics(keep_best, early_stopping, lambda: evaluation.metric_names(
    program, batch_size, variables, bad))
  evaluator = _Evaluator(
    lambda path: evaluation.evaluate(
      program, path, batch_size, variables, config, is_interrupted, bad),
    checkpoint_dir, is_interrupted, watch, once, keep_best, early_stopping)
  evaluator.on_evaluation = on_evaluation
  if once:
    return evaluator.finish("one evaluation was asked for", 0)
  watch.log_wait()
  while True:
    end = watch.look()  # before the checkpoints: the last one is there when the run has ended
    if end is not None:
      return evaluator.finish(*end)
    evaluator.evaluate_new()
    _wait(look_every, is_interrupted)
    if is_interrupted():
      return evaluator.outcome("interrupted", EXIT_FAILED)


def _check_metrics(keep_best, early_stopping, read_names: Callable[[], List[str]]) -> None:
  asked = []
  if keep_best is not None:
    asked.append(("keep_best", keep_best.metric))
  if early_stopping is not None:
    asked.append(("early_stopping", early_stopping.goal.metric))
  names = read_names() if asked else []
  for option, metric in asked:
    if metric not in names:
      raise evaluation.EvaluationError(
        f"--{option}: the program has no metric {metric!r}. It has {', '.join(names)}")


class RunWatch:
  """Follows a run by its status file."""

  def __init__(self, checkpoint_dir: str, heartbeat_timeout: float, start_timeout: float):
    """Reads the file; the limits are those of `follow_checkpoints`."""
    self._file = RunFile(checkpoint_dir)
    self._heartbeat_timeout, self._start_timeout = heartbeat_timeout, start_timeout
    self._status = self._file.read()
    self._changed_at = time.monotonic()
    self._is_alive = False  # whether the content has changed since the start

  @property
  def run(self) -> str:
    """The id of the run, as of the last look; "" before there is one."""
    return "" if self._status is None else self._status.run

  def log_wait(self) -> None:
    """Says that another run is waited for, if the last one has ended."""
    if self._status is not None and self._status.state != RUN_RUNNING:
      _log.info(
        "the last run has ended; waiting %g s for a new one (with --once, it does not wait)",
        self._start_timeout)

  def look(self) -> Optional[Tuple[str, int]]:
    """Returns None while the run may go on, else (reason, exit code)."""
    status = self._file.read() or self._status  # a file that cannot be read counts as unchanged
    now = time.monotonic()
    if status != self._status:
      self._status, self._changed_at, self._is_alive = status, now, True
    silent = now - self._changed_at
    if self._is_alive:
      is_over = status.state != RUN_RUNNING and not status.may_resume
      if is_over or silent >= self._heartbeat_timeout:
        return self._ended(silent)
    elif silent >= self._start_timeout:
      if status is None:
        return f"no run appeared within {silent:.0f} s", EXIT_FAILED
      return self._ended(silent)
    return None

  def _ended(self, silent):
    if self._status.state == RUN_RUNNING:
      return f"the run is lost: no sign of life for {silent:.0f} s", EXIT_FAILED
    if self._status.state == RUN_ENDED:
      return f"the run has ended at step {self._status.global_step}", 0
    reason = f": {self._status.reason}" if self._status.reason else ""
    return f"the run has failed at step {self._status.global_step}{reason}", EXIT_FAILED


def summarize_evaluation(checkpoint_dir: str, found: evaluation.Evaluation) -> None:
  """Writes summaries of an evaluation to the folder "eval" of a checkpoint directory."""
  folder = os.path.join(checkpoint_dir, SUMMARIES)
  values = [tf.Summary.Value(tag=name, simple_value=value)
            for name, value in found.metrics.items()]
  with tf.Graph().as_default():  # an event file needs graph mode
    write_summary(folder, tf.Summary(value=values), found.global_step)
    flush_summaries(folder)


class _Evaluator:
  """Evaluates each checkpoint once, and writes the summaries."""

  def __init__(self, evaluate, checkpoint_dir, interrupted, watch, once, keep_best,
               early_stopping):
    self._evaluate, self._directory = evaluate, checkpoint_dir
    self._is_interrupted, self._watch = interrupted, watch
    self._folder = os.path.join(checkpoint_dir, SUMMARIES)
    memory = evaluator_memory.read_memory(self._folder)
    self._old = set()  # checkpoints of before the first start
    if memory is None:
      memory = evaluator_memory.Memory({})
      self._old = set(listed_checkpoints(checkpoint_dir)[:-1])
    self._last = evaluator_memory.read_last(memory)
    self._once, self._known = once, memory.evaluated
    self._evaluated = {} if once else dict(memory.evaluated)
    self._damaged = {}  # the errors of those that cannot be read, by their paths
    self._goal, self._best = keep_best, None
    if keep_best is not None:
      self._best = best_checkpoint.BestCheckpoint(checkpoint_dir, keep_best, memory.best)
    self._kept_best = memory.best
    self._patience, self._kept_patience = None, memory.patience
    if early_stopping is not None:
      self._patience = evaluator_memory.Patience(early_stopping, memory.patience)
    self._stop_file = StopFile(checkpoint_dir)
    self._says_memory = True
    self._count = 0
    self.on_evaluation = lambda count, found: None

  def evaluate_new(self) -> None:
    """Evaluates the listed checkpoints that are new, the newest first."""
    while not self._is_interrupted():
      new = self._new(path for path in listed_checkpoints(self._directory)
                      if path not in self._old)
      if not new:
        return
      self._evaluate_one(new[-1])
      if new[-1] in self._damaged:
        _log.warning("%s. It is not evaluated", self._damaged[new[-1]])

  def finish(self, reason: str, code: int) -> EvaluatorOutcome:
    """Evaluates the last checkpoint if that is still to do."""
    use_latest(self._directory, self._evaluate_last)
    if self._is_interrupted():
      return self.outcome("interrupted", EXIT_FAILED)
    if self._last is None and code == 0:
      return self.outcome(f"{reason}, but there is no checkpoint to evaluate", EXIT_FAILED)
    asked = "" if self._once else self._stop_file.read(self._watch.run)
    return self.outcome(f"{asked}; {reason}" if asked else reason, code)

  def outcome(self, reason: str, code: int) -> EvaluatorOutcome:
    return EvaluatorOutcome(self._count, self._last, reason, code)

  def _new(self, paths):
    return evaluator_memory.new_ones(paths, self._evaluated)

  def _evaluate_last(self, path: str) -> str:
    if self._new([path]):
      self._evaluate_one(path)
    elif evaluator_memory.stamp_of(path) is None:
      verify_checkpoint(path)  # which names the missing index
    if path in self._damaged:
      raise self._damaged[path]
    return path

  def _evaluate_one(self, path: str) -> None:
    name = os.path.basename(path)
    self._evaluated[name] = evaluator_memory.stamp_of(path)
    self._damaged.pop(path, None)
    pinned = path if self._best is None else self._best.pin(path)
    found = None
    try:
      found = self._evaluate(pinned)
    except DamagedCheckpointError as error:
      if path in listed_checkpoints(self._directory):
        self._damaged[path] = error
      else:
        _log.info("%s was deleted while it was being read: skipped", path)
    finally:
      if self._best is not None:
        self._best.judge(
          path, pinned, None if found is None else found.metrics[self._goal.metric])
    if found is None:
      return  # interrupted, or without a result
    _log.info("%s", evaluation.format_evaluation(found))
    self._count += 1
    if self._last is None or (found.global_step or 0) >= (self._last.global_step or 0):
      self._last = found
    self.on_evaluation(self._count, self._last)
    summarize_evaluation(self._directory, found)
    self._ask_for_end(found)
    self._remember()

  def _ask_for_end(self, found: evaluation.Evaluation) -> None:
    """Asks the chief for the end of the run if it has not improved for too long."""
    reason = "" if self._patience is None else self._patience.count(self._watch.run, found)
    if reason and self._watch.run:
      _log.info("%s: the run shall end", reason)
      try:
        self._stop_file.write(self._watch.run, reason)
      except tf.errors.OpError as error:
        _log.warning("the end of the run could not be asked for: %s", error.message)

  def _remember(self) -> None:
    listed = {os.path.basename(path) for path in listed_checkpoints(self._directory)}
    known = {**self._known, **self._evaluated}
    memory = evaluator_memory.Memory(
      {name: one for name, one in known.items() if name in listed}, dict(self._last._asdict()),
      self._kept_best if self._best is None else self._best.to_json(),
      self._kept_patience if self._patience is None else self._patience.to_json())
    try:
      evaluator_memory.write_memory(self._folder, memory)
    except tf.errors.OpError as error:
      if self._says_memory:
        self._says_memory = False
        _log.warning("a restarted evaluator will repeat evaluations: %s", error.message)


def _wait(seconds: float, is_interrupted: Callable[[], bool]) -> None:
  until = time.monotonic() + seconds
  while not is_interrupted():
    left = until - time.monotonic()
    if left <= 0:
      return
    time.sleep(min(left, TIMING.fast_poll_interval))
