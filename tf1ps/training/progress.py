"""What a worker says of its progress, and how it counts examples.

`ExampleCounter` adds up the sizes of the batches that were trained on. `Progress` says, every few
seconds, how far the job is: on one line where the output is a terminal, else as plain
lines that begin with "progress: ".
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import Callable, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import TIMING


class ExampleCounter(tf.train.SessionRunHook):
  """Counts the examples that this worker has trained on.

  Attributes:
    examples: the count, over recoveries, and over a restart where the run remembers it.
    late: examples of batches whose gradients came too late for an update.
    largest: examples of the largest batch so far.
  """

  def __init__(self, fetches, before: Callable[[], int] = lambda: 0):
    """Creates the hook.

    Args:
      fetches: an `execution.Fetches`: what to fetch of a run.
      before: called when the first session is there; what an earlier process trained on.
    """
    self._fetches = fetches
    self._before = before
    self._names = [name for name in ("size", "taken") if fetches.fetch(name) is not None]
    self._begun = False
    self._lock = threading.Lock()
    self.examples = 0
    self.late = self.late_batches = self.largest = 0

  def after_create_session(self, session, coord):
    if not self._begun:
      self._begun = True
      self.examples += self._before()

  def before_run(self, run_context):
    return tf.train.SessionRunArgs({name: self._fetches.fetch(name) for name in self._names})

  def after_run(self, run_context, run_values):
    self.note(run_values.results["size"], run_values.results.get("taken", True))

  def note(self, sizes, taken=True) -> None:
    """Counts the batches of a run.

    Args:
      sizes: of each batch, a vector; of a single one a scalar.
      taken: likewise, whether its gradient is in an update; or True, for all of them.
    """
    sizes = as_list(sizes)
    taken = [True] * len(sizes) if taken is True else as_list(taken)
    with self._lock:
      for size, is_taken in zip(sizes, taken):
        if is_taken:
          self.examples += size
        else:
          self.late += size
          self.late_batches += 1
        self.largest = max(self.largest, size)

  def add(self, examples: int, late: int = 0) -> None:
    """Adds examples, and those that came too late; other threads may do so too."""
    with self._lock:
      self.examples += examples
      self.late += late


def as_list(value) -> list:
  """The numbers in a fetched scalar or vector; a single one where it is a number already."""
  value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
  return value if isinstance(value, list) else [value]


class Progress(tf.train.SessionRunHook):
  """Says how far the job is; a batch of another worker counts as many examples as one of this."""

  def __init__(self, tracker: GlobalStepTracker, counter: ExampleCounter, execution,
               last_step: Optional[int] = None, stream=None, share: Optional[float] = None,
               others=None):
    """Creates the hook.

    Args:
      tracker: the tracker, which stands before this hook.
      counter: the counter, which stands before this hook.
      execution: an `execution.Execution`, which knows the losses.
      last_step: the global step at which the job ends, or None.
      stream: where to write; None: stdout.
      share: how many times the counter's examples all workers train on; None: as the global step
        is raised more often than by this worker.
      others: the threads whose steps the counter counts too, and the tracker does not; or None.
    """
    self._tracker = tracker
    self._counter = counter
    self._execution = execution
    self._last_step = last_step
    self._stream = stream or sys.stdout
    self._share = share
    self._others = others
    self._width = 0  # of the line on the terminal
    self._began = None
    self._next = 0.0
    self.loss = float("nan")

  def after_create_session(self, session, coord):
    if self._began is None:
      self._began = (time.monotonic(), self._tracker.value, self._counter.examples)
      self._next = time.monotonic() + TIMING.first_report

  def after_run(self, run_context, run_values):
    self.loss = float(self._execution.losses[-1])
    now = time.monotonic()
    if now >= self._next and self._tracker.asked:
      on_terminal = self._stream.isatty()
      self._next = now + (TIMING.screen_interval if on_terminal else TIMING.report_interval)
      self._say(now, on_terminal)

  def end(self, session):
    if self._width:
      self._stream.write("\n")
      self._stream.flush()

  def text(self, now: float) -> str:
    """The line, without its beginning."""
    began, step, examples = self._began
    seconds = max(now - began, 1e-9)
    rate = (self._tracker.value - step) / seconds
    steps = self._tracker.value - step
    own = self._tracker.own_steps + (0 if self._others is None else self._others.steps)
    share = steps / max(1, own) if self._share is None else self._share
    examples = share * (self._counter.examples - examples) / seconds
    parts = ["step %d" % self._tracker.value + (
      " of %d" % self._last_step if self._last_step else "")]
    parts += ["loss %.4f" % self.loss, "%.1f steps/s" % rate, "%.0f examples/s" % examples]
    if self._last_step and rate > 0:
      left = max(0, self._last_step - self._tracker.value) / rate
      parts.append("%d:%02d left" % divmod(int(left + 0.5), 60))
    return ", ".join(parts)

  def _say(self, now, on_terminal):
    if not on_terminal:
      print("progress: " + self.text(now), file=self._stream, flush=True)
      return
    # A line that wraps could not be overwritten.
    line = self.text(now)[:shutil.get_terminal_size().columns - 1]
    self._stream.write("\r" + line.ljust(self._width))
    self._stream.flush()
    self._width = len(line)
