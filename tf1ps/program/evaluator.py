"""The evaluator: follows the checkpoints of a run, and never connects to its cluster.

It reads two files of the checkpoint directory: the state file, which lists the checkpoints, and the
run's status file, which the chief rewrites every few seconds. It repeats these steps:

1. It reads the status file. The run counts as alive once the content of the file has changed since
   the start of the evaluator, because the content at the start may come from an older run.
2. It evaluates the newest listed checkpoint, and leaves out the checkpoints before it. So an
   evaluator that is slower than the saves does not fall behind, and evaluates in the order of the
   steps. A restarted evaluator knows the evaluated checkpoints (evaluator_memory.py).
3. It may keep the best checkpoint (best_checkpoint.py), export it at the end, and ask for the end
   of a run that no longer improves: it writes a small file, which the chief looks for.
4. It ends when the run has ended, when the status file has not changed for too long, or when no run
   has appeared in time. Before that it evaluates the last checkpoint, unless it has done so.

All times are measured by the clock of this process, because clocks of two machines may differ.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import (
  DamagedCheckpointError,
  is_hidden,
  listed_checkpoints,
  use_latest,
  verify_checkpoint,
)
from tf1ps.compat import EXIT_FAILED, TIMING
from tf1ps.pipeline import BadRecords
from tf1ps.program import arguments, best_checkpoint, evaluation, evaluator_memory, saved_model
from tf1ps.program.contract import Program
from tf1ps.program.metric_goals import MetricGoal
from tf1ps.session import flush_summaries, write_summary
from tf1ps.state import RUN_ENDED, RUN_RUNNING, RunFile, StopFile

_log = logging.getLogger("tf1ps")

SUMMARIES = "eval"  # the folder in the checkpoint directory


class EvaluatorOutcome(NamedTuple):
  """The end of an evaluator."""

  evaluations: int  # the number of checkpoints that were evaluated
  last: Optional[evaluation.Evaluation]  # the evaluation of the newest evaluated checkpoint
  reason: str  # why the evaluator ended
  code: int  # the exit code: 0 if the run reached its goal and was evaluated

  @property
  def metrics(self) -> Dict[str, float]:
    """The metrics of the newest checkpoint, as every result has them; {} without a checkpoint."""
    return {} if self.last is None else self.last.metrics


def follow_checkpoints(
  program: Program,
  checkpoint_dir: str,
  heartbeat_timeout: float,
  start_timeout: float,
  batch_size: int,
  config: Optional[tf.ConfigProto] = None,
  interrupted: Optional[Callable[[], bool]] = None,
  look_every: float = 1.0,
  bad: Optional[BadRecords] = None,
  checkpoint: Optional[str] = None,
  keep_best: Optional[MetricGoal] = None,
  on_evaluation: Callable[[int, evaluation.Evaluation], None] = lambda count, last: None,
) -> EvaluatorOutcome:
  """Evaluates the checkpoints of a run until it ends.

  It writes summaries of the metrics to the folder "eval" in the checkpoint directory.

  Args:
    program: the program.
    checkpoint_dir: the run's checkpoint directory; it need not exist yet.
    heartbeat_timeout: seconds without a change of the status file after which the run counts as
      lost.
    start_timeout: seconds within which a run must appear.
    batch_size: examples in a batch.
    config: the config of the sessions.
    interrupted: called several times per second; the evaluator ends when it returns True.
    look_every: seconds between two checks of the directory.
    bad: the policy for bad records. By default a bad record is an error.
    checkpoint: None: those of a run, as they come. "latest" or a path, without the endings of its
      files: only that checkpoint, without waiting for a run.
    keep_best: the metric whose best checkpoint is kept in the folder "best" of the directory, and
      exported there when the run has ended well. Its patience is the number of evaluations without
      an improvement after which the evaluator asks for the end of the run.
    on_evaluation: called after each evaluation, with the number of evaluations and the newest
      evaluation.

  Returns:
    The outcome. Its code is 0 if the run has ended well. This includes a run that ended before the
    evaluator started, if no other run has appeared. With `checkpoint`, the code is 0 if it exists.
    Otherwise the code is 1.

  Raises:
    CheckpointError: a checkpoint does not fit the program, or at the end no checkpoint can be read.
    EvaluationError: the program lacks a metric; or see `evaluate_checkpoint`.
    ProgramError, ModelSpecError: see `evaluate_checkpoint`.
  """
  for name, value in (("heartbeat_timeout", heartbeat_timeout), ("start_timeout", start_timeout),
                      ("look_every", look_every)):
    if not value > 0:
      raise ValueError(f"{name} must be above 0 seconds, got {value}")
  is_interrupted = interrupted or (lambda: False)
  watch = RunWatch(checkpoint_dir, heartbeat_timeout, start_timeout)
  if keep_best is not None:
    names = evaluation.metric_names(program, batch_size, bad)
    if keep_best.metric not in names:
      raise evaluation.EvaluationError(
        f"--keep_best: the program has no metric {keep_best.metric!r}. It has {', '.join(names)}")
  evaluator = _Evaluator(
    lambda path: evaluation.evaluate_checkpoint(
      program, path, batch_size, config, is_interrupted, bad),
    checkpoint_dir, is_interrupted, watch, checkpoint is not None, keep_best,
    lambda path, exported: saved_model.export_saved_model(
      program, checkpoint_dir, exported, path, config), on_evaluation)
  watch.begin()  # the search for the best checkpoint may have taken a while
  if checkpoint is not None:
    return evaluator.finish("one evaluation was asked for", 0, arguments.path_of(checkpoint))
  watch.log_wait()
  while True:
    end = watch.look()  # before the checkpoints: once the run has ended, the last one is listed
    if end is not None:
      return evaluator.finish(*end)
    evaluator.evaluate_new()
    _wait(look_every, is_interrupted)
    if is_interrupted():
      return evaluator.outcome("interrupted", EXIT_FAILED)


class RunWatch:
  """Follows a run by its status file."""

  def __init__(self, checkpoint_dir: str, heartbeat_timeout: float, start_timeout: float):
    """Reads the file; the limits are those of `follow_checkpoints`."""
    self._file = RunFile(checkpoint_dir)
    self._heartbeat_timeout, self._start_timeout = heartbeat_timeout, start_timeout
    self._status = self._file.read()
    self._is_alive = False  # whether the content has changed since the start
    self.begin()

  def begin(self) -> None:
    """Begins the time in which a run must appear."""
    self._changed_at = time.monotonic()

  @property
  def run(self) -> str:
    """The id of the run, as of the last look; "" before a run."""
    return "" if self._status is None else self._status.run

  def log_wait(self) -> None:
    """Logs that the evaluator waits for another run, if the last run has ended."""
    if self._status is not None and self._status.state != RUN_RUNNING:
      _log.info(
        "the last run has ended; waiting %g s for a new run (with --checkpoint=latest, it does not "
        "wait)", self._start_timeout)

  def look(self) -> Optional[Tuple[str, int]]:
    """Returns None while the run may go on, else (reason, exit code)."""
    status = self._file.read() or self._status  # a file that cannot be read counts as unchanged
    now = time.monotonic()
    if status != self._status:
      self._status, self._changed_at, self._is_alive = status, now, True
    silent = now - self._changed_at
    if self._is_alive:
      is_over = status is not None and status.state != RUN_RUNNING and not status.may_resume
      if is_over or silent >= self._heartbeat_timeout:
        return self._ended(silent)
    elif silent >= self._start_timeout:
      if status is None:
        hint = f": this user must not read {self._file.path}" if is_hidden(self._file.path) else ""
        return f"no run appeared within {silent:.0f} s{hint}", EXIT_FAILED
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

  def __init__(self, evaluate, checkpoint_dir, interrupted, watch, once, keep_best, export,
               on_evaluation):
    self._evaluate, self._export, self._directory = evaluate, export, checkpoint_dir
    self._on_evaluation = on_evaluation
    self._is_interrupted, self._watch = interrupted, watch
    self._folder = os.path.join(checkpoint_dir, SUMMARIES)
    memory = evaluator_memory.read_memory(self._folder)
    self._old = set()  # checkpoints that are older than the first start
    if memory is None:
      memory = evaluator_memory.Memory({})
      self._old = set(listed_checkpoints(checkpoint_dir)[:-1])
    self._last = evaluator_memory.read_last(memory)
    self._once, self._known = once, memory.evaluated
    self._evaluated = {} if once else dict(memory.evaluated)
    self._damaged = {}  # {path: the error} of the checkpoints that cannot be read
    self._best = None
    if keep_best is not None:
      self._best = best_checkpoint.BestCheckpoint(checkpoint_dir, keep_best, memory.best)
      self._best.find(evaluate)
    self._kept_best = memory.best
    self._patience, self._kept_patience = None, memory.patience
    if keep_best is not None and keep_best.patience is not None:
      self._patience = evaluator_memory.Patience(keep_best, memory.patience)
    self._stop_file = StopFile(checkpoint_dir)
    self._remembers = self._says_memory = True
    self._count = self._left_out = 0

  def evaluate_new(self) -> None:
    """Evaluates the newest of the new checkpoints, until no new checkpoint is left."""
    while not self._is_interrupted():
      new = self._new(path for path in listed_checkpoints(self._directory) if path not in self._old)
      if not new:
        return
      self._evaluate_path(new[-1], new[:-1])
      if new[-1] in self._damaged:
        _log.warning("%s. It is not evaluated", self._damaged[new[-1]])

  def finish(self, reason: str, code: int, checkpoint: Optional[str] = None) -> EvaluatorOutcome:
    """Evaluates the last checkpoint, or the given checkpoint, unless it has been evaluated."""
    if checkpoint is None:
      use_latest(self._directory, self._evaluate_last)
    else:
      self._last, self._remembers = None, False  # the checkpoint may be of an earlier step
      self._evaluate_last(checkpoint)
    if self._is_interrupted():
      return self.outcome("interrupted", EXIT_FAILED)
    if self._last is None and code == 0:
      return self.outcome(f"{reason}, but {self._directory} has no checkpoint", EXIT_FAILED)
    parts = [reason]
    if not self._once:
      parts.insert(0, self._stop_file.read(self._watch.run))
      parts.append(f"{self._left_out} checkpoints left out" if self._left_out > 1 else
                   "1 checkpoint left out" if self._left_out else "")
    if self._best is not None:
      parts.append(self._best.finish(None if code or self._once else self._export))
    return self.outcome("; ".join(filter(None, parts)), code)

  def outcome(self, reason: str, code: int) -> EvaluatorOutcome:
    return EvaluatorOutcome(self._count, self._last, reason, code)

  def _new(self, paths):
    return evaluator_memory.new_checkpoints(paths, self._evaluated)

  def _evaluate_last(self, path: str) -> str:
    if self._new([path]):
      self._evaluate_path(path)
    elif evaluator_memory.stamp_of(path) is None:
      verify_checkpoint(path)  # its error names the missing index
    if path in self._damaged:
      raise self._damaged[path]
    return path

  def _evaluate_path(self, path: str, older: Sequence[str] = ()) -> None:
    """Evaluates a checkpoint, and leaves out older checkpoints if it has a result."""
    name = os.path.basename(path)
    self._evaluated[name] = evaluator_memory.stamp_of(path)
    self._damaged.pop(path, None)
    pinned = path if self._best is None else self._best.pin(path)
    result = None
    try:
      result = self._evaluate(pinned)
    except DamagedCheckpointError as error:
      if not self._remembers or path in listed_checkpoints(self._directory):
        self._damaged[path] = error
      else:
        _log.info("%s was deleted while it was being read: skipped", path)
    finally:
      if self._best is not None:
        self._best.judge(path, pinned, result)
    if result is None:
      return  # interrupted, or without a result
    _log.info("%s", evaluation.format_evaluation(result))
    if older and not self._left_out:
      _log.info("an evaluation takes longer than the time between two checkpoints: of several new "
                "checkpoints, the newest alone is evaluated")
    self._left_out += len(older)
    self._evaluated.update(
      {os.path.basename(other): evaluator_memory.stamp_of(other) for other in older})
    self._count += 1
    if self._last is None or (result.global_step or 0) >= (self._last.global_step or 0):
      self._last = result
    self._on_evaluation(self._count, self._last)
    values = [tf.Summary.Value(tag=tag, simple_value=value)
              for tag, value in result.metrics.items()]
    with tf.Graph().as_default():  # an event file needs graph mode
      write_summary(self._folder, tf.Summary(value=values), result.global_step)
      flush_summaries(self._folder)
    self._ask_for_end(result)
    if self._remembers:
      self._remember()

  def _ask_for_end(self, result: evaluation.Evaluation) -> None:
    """Asks the chief for the end of the run if it has not improved for too long."""
    reason = "" if self._patience is None else self._patience.count(self._watch.run, result)
    if reason and self._watch.run and not self._stop_file.read(self._watch.run):
      _log.info("%s: the run shall end", reason)
      try:
        self._stop_file.write(self._watch.run, reason)
      except tf.errors.OpError as error:
        _log.warning("the end of the run could not be asked for: %s", error.message)

  def _remember(self) -> None:
    listed = {os.path.basename(path) for path in listed_checkpoints(self._directory)}
    known = {**self._known, **self._evaluated}
    memory = evaluator_memory.Memory(
      {name: stamp for name, stamp in known.items() if name in listed}, dict(self._last._asdict()),
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
