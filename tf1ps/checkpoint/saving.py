"""Checkpoints while training: every so many seconds or steps, at the start and at the end.

Like stock's CheckpointSaverHook, with two differences: it asks for the global step when it saves,
not at every step; and after the first save it looks whether every part of the checkpoint can be
seen from here. A ps writes its part on its own disk, and on machines that share no directory stock
"succeeds".
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Callable, Dict, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints, global_step
from tf1ps.compat import error_line

_log = logging.getLogger("tf1ps")


class CheckpointSaver(tf.train.SessionRunHook):
  """Saves checkpoints; belongs to the chief.

  Attributes:
    saved_step: the global step of the last checkpoint that was saved, or None.
    before_save: callables that are called with the session before the loop saves.
  """

  def __init__(self, tracker: global_step.GlobalStepTracker, checkpoint_dir: str,
               scaffold: tf.train.Scaffold, save_secs: Optional[float] = None,
               save_steps: Optional[int] = None, save_graph_def: bool = True,
               basename: str = "model.ckpt"):
    """Creates the hook.

    Args:
      tracker: the tracker, which stands before this hook.
      checkpoint_dir: the directory; it is created.
      scaffold: the scaffold whose saver saves.
      save_secs: seconds between two checkpoints, or None.
      save_steps: global steps between two checkpoints, or None. One of the two must be given.
      save_graph_def: whether the graph is written as text, once, and as meta graph with each
        checkpoint.
      basename: the checkpoints' names before "-STEP".
    """
    if (save_secs is None) == (save_steps is None):
      raise ValueError("give save_secs or save_steps, one of them; got %r and %r" % (
        save_secs, save_steps))
    if (save_secs or save_steps) <= 0:
      raise ValueError("checkpoints need a positive interval, got %r" % (save_secs or save_steps,))
    self._tracker = tracker
    self._directory = checkpoint_dir
    self._prefix = os.path.join(checkpoint_dir, basename)
    self._scaffold = scaffold
    self._save_secs = save_secs
    self._save_steps = save_steps
    self._save_graph_def = save_graph_def
    self._saved_at = 0.0
    self._begun = False
    self._shards_seen = False
    self._lock = threading.Lock()
    self._beside: Dict[str, Callable[[], str]] = {}
    self.saved_step = None
    self.before_save = []

  def keep_beside(self, suffix: str, make: Callable[[], str]) -> None:
    """Has a text kept beside each checkpoint, as of before its variables are saved.

    Args:
      suffix: of the file, after the checkpoint's path.
      make: makes the text.
    """
    self._beside[suffix] = make

  def begin(self):
    try:
      tf.gfile.MakeDirs(self._directory)
    except tf.errors.OpError as error:
      raise checkpoints.CheckpointError(
        "checkpoint_dir %s cannot be made: %s" % (self._directory, error.message)) from error
    if not tf.gfile.IsDirectory(self._directory):  # 1.15 makes no error of a file in its place
      raise checkpoints.CheckpointError("checkpoint_dir %s is no directory" % self._directory)

  def after_create_session(self, session, coord):
    if not self._begun:
      self._begun = True
      self._begin_in(session.graph)
    if self.saved_step != self._tracker.value:
      self.save(session, self._tracker.value)
    self._plan()

  def _begin_in(self, graph):
    """Writes the graph, and takes over the checkpoints that an earlier process listed."""
    if self._save_graph_def:
      tf.train.write_graph(graph.as_graph_def(add_shapes=True), self._directory, "graph.pbtxt")
    listed = checkpoints.listed_checkpoints(self._directory)
    self._scaffold.saver.recover_last_checkpoints(listed)
    step = self._tracker.value
    if listed and listed[-1] == "%s-%d" % (self._prefix, step):
      self.saved_step, self._saved_at = step, time.monotonic()

  def _plan(self):
    if self._save_steps is not None:
      left = self.saved_step + self._save_steps - self._tracker.value
      self._tracker.ask_within(left / self._tracker.rate)

  def after_run(self, run_context, run_values):
    if self._save_secs is not None:
      if time.monotonic() - self._saved_at >= self._save_secs:
        self._prepare(run_context.session)
        self.save(run_context.session, self._tracker.ask(run_context.session))
    elif self._tracker.asked:
      if self._tracker.value >= self.saved_step + self._save_steps:
        self._prepare(run_context.session)
        self.save(run_context.session, self._tracker.value)
      self._plan()

  def _prepare(self, session):
    for callback in self.before_save:
      callback(session)

  def end(self, session):
    texts = self._make_beside()
    step = self._tracker.ask(session)
    if step != self.saved_step:
      self.save(session, step)
    else:  # what others tell after a step is in no checkpoint yet
      self._write_beside("%s-%d" % (self._prefix, step), texts)

  def save(self, session, step: int) -> None:
    """Saves a checkpoint now; one at a time, from whichever thread."""
    with self._lock:
      began = time.monotonic()
      self._write_beside("%s-%d" % (self._prefix, step), self._make_beside())
      try:
        # With its meta graph, which tf.train.import_meta_graph wants, as stock has it.
        path = self._scaffold.saver.save(
          session, self._prefix, global_step=step, write_meta_graph=self._save_graph_def)
      except tf.errors.NotFoundError as error:
        raise checkpoints.CheckpointError(
          "%s cannot be saved: %s. A ps writes its part of a checkpoint on its own disk: all tasks "
          "must share --checkpoint_dir" % (self._prefix, error_line(error))) from error
      if not self._shards_seen:
        checkpoints.check_shards_visible(path)
        self._shards_seen = True
      self.saved_step, self._saved_at = step, time.monotonic()
      _log.info("saved %s (%.2f s)", path, self._saved_at - began)

  def _make_beside(self):
    return {suffix: make() for suffix, make in self._beside.items()}

  def _write_beside(self, path, texts):
    for suffix, text in texts.items():
      with tf.gfile.GFile(path + suffix, "w") as file:
        file.write(text)
      for old in tf.gfile.Glob(self._prefix + "-*" + suffix):
        if old != path + suffix and not checkpoints.checkpoint_exists(old[:-len(suffix)]):
          tf.gfile.Remove(old)
