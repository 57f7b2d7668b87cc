"""Evaluates checkpoints while the job trains (--eval_steps), beside the steps of the chief.

1. The chief saves a checkpoint every N global steps. It makes no step meanwhile.
2. A thread of the chief evaluates the checkpoint, as the evaluation at the end does: in a graph and
   a session of its own, without the ps. The chief goes on with its steps. If a checkpoint is ready
   before the evaluation of the one before it has ended, only the newest waits.
3. The result is a line of the log, and a summary beside the checkpoints.
4. The evaluation at the end takes the result of the last checkpoint, if the thread has it.

An evaluation that fails is a warning, and training goes on. The evaluation at the end shows the
error again.
"""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import latest_checkpoint
from tf1ps.compat import error_line
from tf1ps.program import Evaluation, format_evaluation

_log = logging.getLogger("tf1ps")


class StepEvaluation(tf.train.CheckpointSaverListener):
  """Evaluates the checkpoints of a saver; a context, which ends it after an error."""

  def __init__(self, evaluate: Callable[[str, Callable[[], bool]], Optional[Evaluation]],
               directory: str, summarize: Callable[[Evaluation], None]):
    """Creates the listener.

    Args:
      evaluate: called with a checkpoint and a callable that says whether to give up; returns the
        evaluation, or None if it gave up.
      directory: the directory of the checkpoints.
      summarize: called with each evaluation.
    """
    self._evaluate, self._directory, self._summarize = evaluate, directory, summarize
    self._changed = threading.Condition()
    self._thread: Optional[threading.Thread] = None
    self._waiting = self._current = self._wanted = None  # checkpoints
    self._results = {}  # of the last evaluated checkpoint
    self._has_begun = self._gives_up = False

  def after_save(self, session, global_step_value):
    """Takes a checkpoint; not the first, which a session saves before its first step."""
    if not self._has_begun:
      self._has_begun = True
      return
    with self._changed:
      self._waiting = latest_checkpoint(self._directory)
      if self._thread is None and self._waiting is not None:
        self._thread = threading.Thread(target=self._run, name="step-evaluation", daemon=True)
        self._thread.start()
      self._changed.notify_all()

  def __enter__(self) -> "StepEvaluation":
    return self

  def __exit__(self, error, *unused):
    if error is not None:
      self._end()

  def begin_again(self) -> None:
    """Forgets its results: checkpoints of the same names follow."""
    with self._changed:
      self._results, self._has_begun, self._waiting = {}, False, None

  def result_of(self, checkpoint: str) -> Optional[Evaluation]:
    """Returns the evaluation of the last checkpoint, and ends the thread.

    None if the thread does not have this checkpoint, or could not evaluate it.
    """
    with self._changed:
      self._wanted = checkpoint
      while checkpoint in (self._waiting, self._current):
        self._changed.wait(1.0)
    self._end()
    return self._results.get(checkpoint)

  def _end(self):
    with self._changed:
      self._gives_up, self._waiting = True, None
      self._changed.notify_all()

  def _is_over(self):
    # At the end nobody waits for the evaluation of an older checkpoint.
    return self._gives_up or self._wanted not in (None, self._current)

  def _run(self):
    while True:
      with self._changed:
        self._current = None
        self._changed.notify_all()
        while self._waiting is None and not self._gives_up:
          self._changed.wait(1.0)
        if self._gives_up:
          return
        self._current, self._waiting = self._waiting, None
      try:
        found = self._evaluate(self._current, self._is_over)
        if found is not None:
          self._results = {self._current: found}
          _log.info("%s", format_evaluation(found))
          self._summarize(found)
      except Exception as error:  # whatever it is, training goes on
        if latest_checkpoint(self._directory) == self._current:  # else it was deleted meanwhile
          _log.warning("%s was not evaluated, and training goes on: %s", self._current,
                       error_line(error))
