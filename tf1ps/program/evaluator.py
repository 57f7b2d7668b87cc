"""The evaluator: follows the checkpoints of a run, and never connects to its cluster.

It reads two files of the checkpoint directory: the state file, which lists the checkpoints, and the
run's status file, which the chief rewrites every few seconds. It repeats these steps:

1. It reads the status file. The run is alive once the content of the file has changed since the
   start of the evaluator. The content at the start may come from an older run.
2. It evaluates the listed checkpoints that are new, the newest first. Of the checkpoints that are
   listed at the start it evaluates only the newest.
3. It ends when the run has ended, when the status file has not changed for too long, or when no run
   has appeared in time. Before it ends, it evaluates the last checkpoint if that is still to do.

All times are measured by the clock of this process, because clocks of two machines may differ.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Callable, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import CheckpointError, latest_checkpoint, listed_checkpoints
from tf1ps.compat import EXIT_FAILED, TIMING
from tf1ps.pipeline import BadRecords
from tf1ps.program import evaluation, variable_kind
from tf1ps.program.contract import Program
from tf1ps.state import RUN_ENDED, RUN_RUNNING, RunFile

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

  Returns:
    The outcome. Its code is 0 if the run has ended well. This includes a run that ended before the
    evaluator started, if no other run has appeared. With `once` it is 0 if there was a checkpoint.
    Otherwise the code is 1.

  Raises:
    CheckpointError: a checkpoint does not fit the program, or the last one is damaged.
    EvaluationError, ProgramError, ModelSpecError: see `evaluate`.
  """
  for name, value in (("heartbeat_timeout", heartbeat_timeout), ("start_timeout", start_timeout),
                      ("look_every", look_every)):
    if not value > 0:
      raise ValueError(f"{name} must be above 0 seconds, got {value}")
  is_interrupted = interrupted or (lambda: False)
  watch = RunWatch(checkpoint_dir, heartbeat_timeout, start_timeout)
  evaluator = _Evaluator(
    program, checkpoint_dir, batch_size, variables, config, is_interrupted, bad)
  try:
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
  finally:
    evaluator.close()


class RunWatch:
  """Follows a run by its status file."""

  def __init__(self, checkpoint_dir: str, heartbeat_timeout: float, start_timeout: float):
    """Reads the file; the limits are those of `follow_checkpoints`."""
    self._file = RunFile(checkpoint_dir)
    self._heartbeat_timeout, self._start_timeout = heartbeat_timeout, start_timeout
    self._status = self._file.read()
    self._changed_at = time.monotonic()
    self._is_alive = False  # whether the content has changed since the start

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


class _Evaluator:
  """Evaluates each checkpoint once, and writes the summaries."""

  def __init__(self, program, checkpoint_dir, batch_size, variables, config, interrupted, bad):
    self._evaluate = lambda path: evaluation.evaluate(
      program, path, batch_size, variables, config, interrupted, bad)
    self._directory = checkpoint_dir
    self._is_interrupted = interrupted
    # The checkpoints that need no evaluation. At the start these are all but the last.
    self._seen = set(listed_checkpoints(checkpoint_dir)[:-1])
    self._writer = None
    self._count = 0
    self._last = None

  def evaluate_new(self) -> None:
    """Evaluates the listed checkpoints that are new, the newest first."""
    while not self._is_interrupted():
      new = [path for path in listed_checkpoints(self._directory) if path not in self._seen]
      if not new:
        return
      self._evaluate_one(new[-1])

  def finish(self, reason: str, code: int) -> EvaluatorOutcome:
    """Evaluates the last checkpoint if that is still to do."""
    last = latest_checkpoint(self._directory)
    if last is not None and last not in self._seen:
      self._evaluate_one(last)
    if self._is_interrupted():
      return self.outcome("interrupted", EXIT_FAILED)
    if self._last is None and code == 0:
      return self.outcome(f"{reason}, but there is no checkpoint to evaluate", EXIT_FAILED)
    return self.outcome(reason, code)

  def outcome(self, reason: str, code: int) -> EvaluatorOutcome:
    return EvaluatorOutcome(self._count, self._last, reason, code)

  def close(self) -> None:
    if self._writer is not None:
      self._writer.close()

  def _evaluate_one(self, path: str) -> None:
    self._seen.add(path)
    try:
      found = self._evaluate(path)
    except CheckpointError:
      if path in listed_checkpoints(self._directory):
        raise
      _log.info("%s was deleted while it was being read: skipped", path)
      return
    if found is None:
      return  # interrupted
    _log.info("%s", evaluation.format_evaluation(found))
    self._count += 1
    if self._last is None or (found.global_step or 0) >= (self._last.global_step or 0):
      self._last = found
    self._write(found)

  def _write(self, found: evaluation.Evaluation) -> None:
    if self._writer is None:
      with tf.Graph().as_default():  # FileWriter needs graph mode
        self._writer = tf.summary.FileWriter(os.path.join(self._directory, SUMMARIES))
    values = [tf.Summary.Value(tag=name, simple_value=value)
              for name, value in found.metrics.items()]
    self._writer.add_summary(tf.Summary(value=values), found.global_step)
    self._writer.flush()


def _wait(seconds: float, is_interrupted: Callable[[], bool]) -> None:
  until = time.monotonic() + seconds
  while not is_interrupted():
    left = until - time.monotonic()
    if left <= 0:
      return
    time.sleep(min(left, TIMING.fast_poll_interval))
