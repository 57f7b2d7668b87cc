"""Saves checkpoints while training: every N seconds or steps, at the start and at the end.

The hook differs from TensorFlow's CheckpointSaverHook in two ways. It fetches the global step when
it saves, not at every step. After the first save it checks that this task can see every part of the
checkpoint: a ps writes its part on its own disk, which TensorFlow counts as a success even if the
machines share no directory.

A save may fail because the disk is full, or because the directory has vanished or takes no files.

1. If the first save of a process fails, it raises an error: training does not begin.
2. A later failure is a warning, and training continues. The save is tried again after a pause that
   doubles, up to a minute. When `Timing.failed_saves_limit` seconds have passed since the first of
   the failed saves, training ends with the error: all work since the last checkpoint is at risk.
3. If the last save fails, it raises an error.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints, directory, global_step, leftovers
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING, error_line, temporary_path
from tf1ps.graph import definition_without, large_constants

_log = logging.getLogger("tf1ps")
_LONGEST_PAUSE = 12  # times the first pause
# Errors of the connection to a ps, not of the disk: the session recovers from them.
_OF_THE_CONNECTION = (tf.errors.AbortedError, tf.errors.CancelledError,
                      tf.errors.DeadlineExceededError, tf.errors.UnavailableError)


class _Failure(NamedTuple):
  """A series of failed saves."""

  since: float  # the time of the first failure, by the monotonic clock
  pause: float  # seconds from the last failure to the next try
  next_at: float  # the time of the next try


class _Nans(NamedTuple):
  """The trained variables of a device and a type, and whether each contains a NaN."""

  names: List[str]
  are_nan: tf.Tensor  # bool [number of names]


class LastSave(NamedTuple):
  """The last checkpoint of a saver."""

  directory: str
  step: int  # its global step; -1 before the first save
  age: float  # seconds since it was saved
  count: int  # the number of checkpoints that this process has saved


class CheckpointSaver(tf.train.SessionRunHook):
  """Saves checkpoints. It is a hook of the chief.

  Attributes:
    saved_step: the global step of the last checkpoint, or of the last save that was skipped because
      a trained variable contained a NaN; or None.
  """

  def __init__(self, tracker: global_step.GlobalStepTracker, checkpoint_dir: str,
               scaffold: tf.train.Scaffold, save_secs: Optional[float] = None,
               save_steps: Optional[int] = None, save_graph_def: bool = True,
               basename: str = "model.ckpt", hooks: Sequence[LifecycleHook] = (),
               needs_global_step: bool = True,
               listeners: Sequence[tf.train.CheckpointSaverListener] = (),
               on_saved: Optional[Callable[[str, int], None]] = None):
    """Creates the hook.

    Args:
      tracker: the tracker of the global step, a hook before this hook.
      checkpoint_dir: the directory, which is created if it does not exist.
      scaffold: the scaffold whose saver saves.
      save_secs: seconds between two checkpoints, or None.
      save_steps: global steps between two checkpoints, or None.
      save_graph_def: whether to write the graph: once as text, and as a meta graph with each
        checkpoint. A graph with large constants gets no meta graph.
      basename: the names of the checkpoints before "-STEP".
      hooks: the hooks that prepare for a checkpoint, and keep texts beside it.
      needs_global_step: False: a graph without a global step is saved under the basename alone.
      listeners: called around each checkpoint, as TensorFlow's hook calls them.
      on_saved: called after each checkpoint with the path before "-STEP" and the global step.

    Raises:
      ValueError: not exactly one of save_secs and save_steps is given, the given interval is not
        positive, or TensorFlow cannot use the directory's path.
    """
    if (save_secs is None) == (save_steps is None):
      raise ValueError("give one of save_secs and save_steps, got %r and %r" % (
        save_secs, save_steps))
    if (save_secs or save_steps) <= 0:
      raise ValueError("checkpoints need a positive interval, got %r" % (save_secs or save_steps,))
    problem = directory.directory_problem(checkpoint_dir)
    if problem:
      raise ValueError("checkpoint_dir %s, got %r" % (problem, checkpoint_dir))
    self._tracker = tracker
    self._directory = checkpoint_dir
    self._prefix = os.path.join(checkpoint_dir, basename)
    self._scaffold, self._save_secs, self._save_steps = scaffold, save_secs, save_steps
    self._save_graph_def = save_graph_def
    self._saved_at, self._count = 0.0, 0
    self._begun = False
    self._shards_seen = self._has_saved_last = False
    self._lock = threading.Lock()
    self._hooks = hooks
    self.saved_step = None
    self._nans: List[_Nans] = []
    self._is_spoiled = False
    self._failure: Optional[_Failure] = None
    self._needs_global_step = needs_global_step
    self._listeners, self._on_saved = listeners, on_saved

  def last_save(self) -> LastSave:
    """Returns the last checkpoint; any thread may call it."""
    step = self.saved_step
    return LastSave(self._directory, -1 if step is None else int(step),
                    0.0 if step is None else time.monotonic() - self._saved_at, self._count)

  def begin(self):
    for listener in self._listeners:
      listener.begin()
    if self._needs_global_step:
      self._tracker.check_step("a checkpoint")
    self.prepare()
    self._nans = _find_nans()

  def prepare(self) -> None:
    """Makes the directory; raises CheckpointError if that fails, or if no file can be written."""
    try:
      tf.gfile.MakeDirs(self._directory)
    except tf.errors.OpError as error:
      raise checkpoints.CheckpointError(
        "checkpoint_dir %s cannot be created: %s" % (self._directory, error.message)) from error
    if not tf.gfile.IsDirectory(self._directory):  # TensorFlow 1.15 accepts a file of this name
      raise checkpoints.CheckpointError("checkpoint_dir %s is not a directory" % self._directory)
    try:
      path = temporary_path(os.path.join(self._directory, "tf1ps-try"))
      with tf.gfile.GFile(path, "w") as file:
        file.write("can a file be written?")
      tf.gfile.Remove(path)
    except tf.errors.OpError as error:
      raise checkpoints.CheckpointError("checkpoint_dir %s cannot be written: %s" % (
        self._directory, error.message.rpartition("; ")[2])) from error

  def after_create_session(self, session, coord):
    is_first, self._begun = not self._begun, True
    if is_first:
      self._write_graph(session.graph)
    if self.saved_step != self._tracker.value:
      self._adopt(self._tracker.value)
    if self.saved_step != self._tracker.value or self._listeners:
      # Listeners rely on this first save.
      self._save_and_tell(session, self._tracker.value, may_fail=not is_first)
    self._plan()

  def _write_graph(self, graph):
    if self._save_graph_def:
      large = large_constants(graph)
      tf.train.write_graph(definition_without(graph, large), self._directory, "graph.pbtxt")
      if large:
        self._save_graph_def = False  # each meta graph would contain the large constants
        _log.warning(
          "%d MB of arrays are constants of the graph: checkpoints have no .meta file, and "
          "graph.pbtxt and summaries leave the arrays out. A variable that a session loads, as in "
          "examples/digits.py, keeps arrays out of the graph", sum(large.values()) >> 20)

  def _adopt(self, step):
    """Adopts the checkpoints of earlier sessions, up to the one that this session restored.

    Later checkpoints are damaged: the state file of the next save no longer names them.
    """
    listed = checkpoints.listed_checkpoints(self._directory)
    begun_with = "%s-%d" % (self._prefix, step)
    kept = listed
    if begun_with in listed:
      kept = listed[:listed.index(begun_with) + 1]
    elif not listed and checkpoints.checkpoint_exists(begun_with):
      kept = [begun_with]  # the state file is damaged
    self._scaffold.saver.recover_last_checkpoints(kept)
    if kept and kept[-1] == begun_with:
      self.saved_step, self._saved_at = step, time.monotonic()

  def _plan(self):
    if self._save_steps is not None and self._failure is None:
      left = self.saved_step + self._save_steps - self._tracker.value
      self._tracker.ask_within(left / self._tracker.rate)

  def after_run(self, run_context, run_values):
    if self._failure is not None:
      if time.monotonic() >= self._failure.next_at:
        self._save_between(run_context, self._tracker.ask(run_context.session))
        self._plan()
    elif self._save_secs is not None:
      if time.monotonic() - self._saved_at >= self._save_secs:
        self._save_between(run_context, self._tracker.ask(run_context.session))
    elif self._tracker.asked:
      if self._tracker.value >= self.saved_step + self._save_steps:
        self._save_between(run_context, self._tracker.value)
      self._plan()

  def _save_between(self, run_context, step):
    for hook in self._hooks:
      hook.before_save(run_context.session)
    if self._save_and_tell(run_context.session, step, may_fail=True):
      run_context.request_stop()

  def _save_and_tell(self, session, step, may_fail=False) -> bool:
    """Saves between the calls of the listeners; returns whether a listener asks for the end."""
    for listener in self._listeners:
      listener.before_save(session, step)
    try:
      self.save(session, step)
    except checkpoints.CheckpointError as error:
      if not may_fail:
        raise
      self._note_failure(error)
      return False
    if self._is_spoiled:
      return False  # there is no checkpoint to tell of
    return any([listener.after_save(session, step) for listener in self._listeners])

  def end(self, session):
    if not self._has_saved_last:
      self.save_last(session)
    for listener in self._listeners:
      listener.end(session, self.saved_step)

  def save_last(self, session) -> None:
    """Saves the last checkpoint; may be called again after an error."""
    texts = self._make_beside()
    step = self._tracker.ask(session)
    if step != self.saved_step or self._is_spoiled or not self._tracker.has_step:
      self._save_and_tell(session, step)
      if self._is_spoiled:
        raise checkpoints.CheckpointError(
          "%s at global step %d. The last good checkpoint is %s: lower the learning rate, or look "
          "at the data" % (self._spoiled_by(session), step,
                           checkpoints.latest_checkpoint(self._directory)))
    else:  # the texts may have changed since the checkpoint
      self._write_beside("%s-%d" % (self._prefix, step), texts)
    self._has_saved_last = True

  def save(self, session, step: int) -> None:
    """Saves a checkpoint now, unless a trained variable contains a NaN; raises CheckpointError.

    Any thread may call it; concurrent calls wait for each other.
    """
    with self._lock:
      began = time.monotonic()
      problem = self._spoiled_by(session)
      self._is_spoiled = bool(problem)
      if problem:
        _log.warning("no checkpoint at global step %d: %s", step, problem)
        self.saved_step, self._saved_at = step, began
        return
      try:
        path = self._write(session, step)
      except _OF_THE_CONNECTION:
        raise
      except (tf.errors.OpError, OSError, ValueError) as error:
        leftovers.remove_leftovers(self._directory)  # leftovers would fill the disk
        hint = "A ps writes its part of a checkpoint on its own disk: all tasks must share " \
               "--checkpoint_dir" if isinstance(error, tf.errors.NotFoundError) else ""
        raise checkpoints.CheckpointError(". ".join(filter(None, [
          "the checkpoint %s-%d cannot be saved: %s" % (self._prefix, step, error_line(error)),
          hint]))) from error
      if not self._shards_seen:
        checkpoints.check_shards_visible(path)
        self._shards_seen = True
      self.saved_step, self._saved_at = step, time.monotonic()
      self._count += 1
      if self._failure is not None:
        _log.warning("checkpoints can be saved again, after %.0f s",
                     self._saved_at - self._failure.since)
        self._failure = None
      _log.info("saved %s (%.2f s)", path, self._saved_at - began)
      if self._on_saved is not None:
        self._on_saved(self._prefix, step)

  def _write(self, session, step) -> str:
    if not tf.gfile.IsDirectory(self._directory):
      _log.warning("checkpoint_dir %s has vanished with its checkpoints: it is made again",
                   self._directory)
      tf.gfile.MakeDirs(self._directory)
    named, saver = "%s-%d" % (self._prefix, step), self._scaffold.saver
    texts = self._make_beside()
    self._write_beside(named, texts)
    # With a meta graph for tf.train.import_meta_graph, as TensorFlow's hook writes it.
    path = saver.save(
      session, self._prefix, global_step=step if self._tracker.has_step else None,
      write_meta_graph=self._save_graph_def)
    self._remove_beside(named, texts)
    # Agents often have their own saver, whose `save` returns nothing.
    return path or (saver.last_checkpoints or [named])[-1]

  def _note_failure(self, error):
    """Plans the next try after a failed save, or raises the error when the limit has passed."""
    now = time.monotonic()
    since, pause = now, TIMING.save_retry_pause
    if self._failure is not None:
      since = self._failure.since
      pause = min(2 * self._failure.pause, _LONGEST_PAUSE * TIMING.save_retry_pause)
    if now - since >= TIMING.failed_saves_limit:
      raise checkpoints.CheckpointError(
        "no checkpoint could be saved for %.0f s: %s" % (now - since, error)) from error
    self._failure = _Failure(since, pause, now + pause)
    _log.warning("%s. Training goes on, and ends with an error after %.0f s without a checkpoint; "
                 "the next try is in %.0f s", error, TIMING.failed_saves_limit, pause)

  def _spoiled_by(self, session) -> str:
    """Returns a sentence that names a trained variable that contains a NaN; "" if none does."""
    for nans, are_nan in zip(self._nans, session.run([nans.are_nan for nans in self._nans])):
      for name in itertools.compress(nans.names, are_nan):
        return "the trained variable %s has values that are no numbers" % name
    return ""

  def _make_beside(self):
    return {suffix: text for hook in self._hooks
            for suffix, text in hook.texts_beside_checkpoint().items()}

  def _write_beside(self, path, texts):
    for suffix, text in texts.items():
      with tf.gfile.GFile(path + suffix, "w") as file:
        file.write(text)

  def _remove_beside(self, path, suffixes):
    """Removes the texts of the checkpoints that the saver has deleted."""
    for suffix in suffixes:
      for old in tf.gfile.Glob(self._prefix + "-*" + suffix):
        if old != path + suffix and not checkpoints.checkpoint_exists(old[:-len(suffix)]):
          tf.gfile.Remove(old)


def _find_nans() -> List[_Nans]:
  """Adds operations to the default graph that find the trained variables that contain a NaN."""
  names: Dict[tuple, List[str]] = {}
  sums: Dict[tuple, List[tf.Tensor]] = {}
  with tf.control_dependencies(None):
    for variable in tf.trainable_variables():
      dtype = variable.dtype.base_dtype
      if not dtype.is_floating:
        continue
      with tf.device(variable.device):
        # A sum of squares is NaN only if an element is. It needs a single operation and, unlike
        # is_nan of a large variable, no memory.
        total = tf.nn.l2_loss(variable.read_value())
      names.setdefault((variable.device, dtype), []).append(variable.op.name)
      sums.setdefault((variable.device, dtype), []).append(total)
    nans = []
    for (device, dtype), own in names.items():
      with tf.device(device):
        nans.append(_Nans(own, tf.is_nan(tf.stack(sums[device, dtype]))))
  return nans
