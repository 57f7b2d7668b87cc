"""Keeps the position of a worker's input, so that a restarted worker continues there.

Each worker of a between-graph job has a variable beside the global step: a string with the position
of its iterators. The variables outlive a worker, and the chief's checkpoints contain them.

1. The worker stores its position between two steps: every `Timing.position_interval` seconds, but
   less often if storing would take more than a hundredth of its time; before each checkpoint, if
   the worker is the chief; and at its end. So a position is never ahead of the training, and the
   worker trains again on the batches after the position.
2. A new session continues at the stored position if the pipeline, the worker, the number of workers
   and the batch size are the same. Otherwise it logs the difference and starts from the beginning.
3. At the end of the data the position is deleted, so that a restarted worker starts from the
   beginning. Data that begins again (`--on_uneven=repeat`) has a position in its next pass.

A pipeline starts from the beginning if it calls Python, if TensorFlow cannot save it, or if its
position is larger than `pipeline.iterators.MOST_BYTES`. An error while a position is stored ends
only the storing of positions, and never the training.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from typing import Callable, ContextManager, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING, error_line
from tf1ps.pipeline import IteratorPositions, PositionError
from tf1ps.replication import is_end_of_replicas

_log = logging.getLogger("tf1ps")
_PART = 0.01  # the largest part of the time that storing takes


class InputPositions(LifecycleHook):
  """Stores and restores the position of a worker's input.

  Attributes:
    variables: the positions of all workers, which a checkpoint may lack.
    batches: the number of batches drawn by this worker, including its earlier processes.
    passes: how often the data has begun again (`begin_pass`), including earlier processes.
  """

  def __init__(self, index: int, count: int, batch_size: int, global_step: tf.Variable):
    """Adds the variables of all workers to the default graph, whose input must already be built.

    Args:
      index: the index of this worker, from 0.
      count: the number of workers.
      batch_size: this worker's batch size.
      global_step: the global step; the variables are on its device.
    """
    with tf.get_default_graph().colocate_with(global_step.op, ignore_existing=True), \
        tf.variable_scope(tf.VariableScope(reuse=tf.AUTO_REUSE, use_resource=True)):
      self.variables = [tf.get_variable(
        "tf1ps/input_position/worker_%d" % each, [], tf.string, trainable=False,
        initializer=tf.constant_initializer(b""))
        for each in range(count)]
      self._value = tf.placeholder(tf.string, [])
      self._read = self.variables[index].read_value()
      self._write = self.variables[index].assign(self._value).op
    self._positions = IteratorPositions(tf.get_default_graph())
    self._key = {"digest": self._positions.digest, "worker": index, "workers": count,
                 "batch_size": batch_size}
    self._works = self._positions.can_save
    self._is_over = False
    self._stored_at = 0.0
    self._stored_batches = None
    self._cost = 0.0
    self.batches = self.passes = 0
    self._lock = threading.Lock()
    self._batches_of_run: Callable[[], int] = lambda: 1
    self._quiet: Callable[[], ContextManager[bool]] = lambda: contextlib.nullcontext(True)

  def follow(self, batches_of_run: Callable[[], int],
             quiet: Optional[Callable[[], ContextManager[bool]]] = None) -> None:
    """Tells the hook how batches are drawn, if a run draws several batches or threads draw, too.

    `batches_of_run` returns the number of batches that the run that is about to begin draws.
    `quiet` returns a context manager that keeps threads from drawing batches; its value is whether
    it succeeds.
    """
    self._batches_of_run = batches_of_run
    if quiet is not None:
      self._quiet = quiet

  def begin(self):
    if self._positions.calls_python:
      _log.info("the input calls Python, so its position is not kept: a restarted worker starts "
                "from the beginning of its data")

  def after_create_session(self, session, coord):
    self.batches, self.passes, self._stored_batches = 0, 0, None
    self._stored_at = time.monotonic()
    if self._works:
      self._go_on(session, session.run(self._read))

  def before_run(self, run_context):
    # In before_run, because a hook before this hook may save in its after_run.
    self.add(self._batches_of_run())

  def add(self, batches: int) -> None:
    """Counts batches that are about to be drawn. Any thread may call it."""
    with self._lock:
      self.batches += batches

  def after_run(self, run_context, run_values):
    interval = max(TIMING.position_interval, self._cost / _PART)
    if self._works and time.monotonic() - self._stored_at >= interval:
      self.store(run_context.session)

  def before_save(self, session):
    self.store(session)

  def leave(self, session, finished=True):
    self.store(session)

  def on_end_of_data(self, session, error):
    self._is_over |= not is_end_of_replicas(error)  # if over, the next store deletes the position

  def begin_pass(self) -> None:
    """Notes that the iterators are at the beginning again, after the end of the data."""
    self.go_on()
    self.batches, self.passes = 0, self.passes + 1

  def go_on(self) -> None:
    """Revokes the end of the data, so that a new session has a position again."""
    self._is_over, self._stored_batches = False, None

  def forget(self) -> None:
    """Makes the next store delete the position: a restarted worker starts from the beginning."""
    self._is_over = True

  def store(self, session) -> None:
    """Stores the position now. Call it between two steps."""
    if self._works and (self._stored_batches != self.batches or self._is_over):
      with self._quiet() as is_quiet:
        if is_quiet:
          self._store(session)

  def _store(self, session):
    began = time.monotonic()
    position = b""
    if not self._is_over:
      try:
        position = self._positions.save(session)
      except PositionError as error:
        self._works = False
        _log.warning("the position of the input cannot be kept, so a restarted worker starts from "
                     "the beginning of its data: %s", error_line(error))
      else:
        header = dict(self._key, batches=self.batches)
        if self.passes:
          header["passes"] = self.passes
        position = json.dumps(header, sort_keys=True).encode() + b"\n" + position
    session.run(self._write, {self._value: position})
    self._stored_at, self._stored_batches = time.monotonic(), self.batches
    self._cost = self._stored_at - began

  def _go_on(self, session, stored: bytes):
    header, _, position = stored.partition(b"\n")
    if not header:
      return
    key = json.loads(header.decode())
    batches, passes = key.pop("batches"), key.pop("passes", 0)
    reason = self._difference(key)
    if reason is None:
      try:
        self._positions.restore(session, position)
      except PositionError as error:
        reason = error_line(error)
    if reason is None:
      self.batches = self._stored_batches = batches
      self.passes = passes
      _log.info("goes on at batch %d of its data", batches + 1)
    else:
      _log.warning(
        "starts from the beginning of its data instead of batch %d: %s", batches + 1, reason)

  def _difference(self, key: dict) -> Optional[str]:
    if key == self._key:
      return None
    names = [name for name in sorted(self._key) if key.get(name) != self._key[name]]
    if names == ["digest"]:
      return "its input pipeline, or the files that it reads, have changed"
    return ", ".join("%s was %s and is %s" % (name, key.get(name), self._key[name])
                     for name in names if name != "digest")
