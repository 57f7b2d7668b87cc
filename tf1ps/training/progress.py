"""Counts a worker's examples, and prints its progress.

`ExampleCounter` adds up the sizes of the trained batches, and `StepNotes` notes each run in a file.
Every few seconds `Progress` prints the job's progress: on one line of a terminal, else as lines
such as "13:05:59 progress: step 41". A launcher whose terminal has a line for each task
(`SCREEN_VARIABLE`) gets them each second, also from the workers that are not the chief: these have
the worker's own rates.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import Callable, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import LINE_TIME, SCREEN_VARIABLE, TIMING, JsonStream
from tf1ps.training import step_log


class ExampleCounter(tf.train.SessionRunHook):
  """Counts the examples that this worker has trained on.

  Attributes:
    examples: the count over all recoveries, and over a restart if the run remembers it.
    own: the count of this process.
    late: examples of batches whose gradients came too late for an update.
    largest: the examples of the largest batch so far.
  """

  def __init__(self, fetches, before: Callable[[], int] = lambda: 0):
    """Creates the hook; in the first session, `before` returns an earlier process's examples."""
    self._fetches, self._before = fetches, before
    self._names = [name for name in ("size", "taken") if fetches.fetch(name) is not None]
    self._begun = False
    self._lock = threading.Lock()
    self.examples = self.own = 0
    self.late = self.late_batches = self.largest = 0

  def after_create_session(self, session, coord):
    if not self._begun:
      self._begun = True
      self.examples += self._before()

  def count_on(self, other: "ExampleCounter") -> None:
    """Begins with the counts of another counter of this process."""
    self._begun = True
    self.examples, self.own = other.examples, other.own
    self.late, self.late_batches, self.largest = other.late, other.late_batches, other.largest

  def before_run(self, run_context):
    return tf.train.SessionRunArgs({name: self._fetches.fetch(name) for name in self._names})

  def after_run(self, run_context, run_values):
    self.note(run_values.results["size"], run_values.results.get("taken", True))

  def note(self, sizes, taken=True) -> None:
    """Counts the batches of a run, of sizes `sizes`: a scalar or a vector.

    `taken` says which of their gradients are in an update; True: all of them.
    """
    sizes = as_list(sizes)
    taken = [True] * len(sizes) if taken is True else as_list(taken)
    with self._lock:
      for size, is_taken in zip(sizes, taken):
        if is_taken:
          self.examples += size
          self.own += size
        else:
          self.late += size
          self.late_batches += 1
        self.largest = max(self.largest, size)

  def add(self, examples: int, late: int = 0) -> None:
    """Adds examples, and late ones; any thread may call it."""
    with self._lock:
      self.examples += examples
      self.own += examples
      self.late += late


def as_list(value) -> list:
  """Returns a fetched scalar or vector as a list of numbers."""
  value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
  return value if isinstance(value, list) else [value]


class StepNotes(tf.train.SessionRunHook):
  """Notes each run in a file (step_log.py)."""

  def __init__(self, path: str, tracker: GlobalStepTracker, counter: ExampleCounter, execution,
               others=None):
    """Creates the hook; `tracker`, `counter` and `execution` stand before it.

    `others` are the threads whose steps `counter` counts and `tracker` does not, or None.
    """
    self._tracker, self._counter, self._execution = tracker, counter, execution
    self._others = others
    self._file = open(path, "ab", buffering=0)  # a process that is killed has written all

  def after_run(self, run_context, run_values):
    steps = self._tracker.own_steps + (0 if self._others is None else self._others.steps)
    self._file.write(step_log.as_bytes(step_log.NotedRun(
      time.monotonic(), steps, self._counter.examples, float(np.mean(self._execution.losses)))))

  def end(self, session):
    self._file.close()


class Figures(NamedTuple):
  """The progress of a job, or of one worker."""

  step: int  # the global step
  last_step: Optional[int]  # at which the job ends
  loss: float
  steps_per_sec: float
  examples_per_sec: float
  seconds_left: Optional[float]

  def __str__(self):
    parts = ["step %d" % self.step + (" of %d" % self.last_step if self.last_step else "")]
    parts += ["loss %.4f" % self.loss, "%.1f steps/s" % self.steps_per_sec,
              "%.0f examples/s" % self.examples_per_sec]
    if self.seconds_left is not None:
      parts.append("%d:%02d left" % divmod(int(self.seconds_left + 0.5), 60))
    return ", ".join(parts)


class _Begin(NamedTuple):
  """The begin of this process's training."""

  time: float  # by the monotonic clock
  step: int  # the global step
  examples: int  # those that the counter has
  own: int  # this worker's steps


class Progress(tf.train.SessionRunHook):
  """Prints the job's progress; it takes other workers' batches for as large as this worker's."""

  def __init__(self, tracker: GlobalStepTracker, counter: ExampleCounter, execution,
               last_step: Optional[int] = None, stream=None, share: Optional[float] = None,
               others=None, last_example: Optional[int] = None, is_chief: bool = True,
               before: Callable[[], int] = lambda: 0,
               find_last_example: Callable[[tf.Session], Optional[int]] = lambda session: None):
    """Creates the hook; `tracker` and `counter` stand before it.

    Args:
      tracker: tracks the global step.
      counter: counts the examples.
      execution: the `execution.Execution`, which knows the losses.
      last_step: the global step at which the job ends, or None.
      stream: the stream to write to; None: stdout.
      share: the examples of all workers per counted example; None: global steps per own step.
      others: the threads whose steps `counter` counts and `tracker` does not; or None.
      last_example: the examples of all workers at which the job ends, or None.
      is_chief: False: the rates are those of this worker alone.
      before: returns the examples that the job trained on before this run.
      find_last_example: returns `last_example` in the first session if it was not given.
    """
    self._find_last_example = find_last_example
    self._last_example, self._is_chief, self._before = last_example, is_chief, before
    self._tracker, self._counter, self._execution = tracker, counter, execution
    self._last_step = last_step
    self._stream = stream or sys.stdout
    self._share, self._others = share, others
    self._width = 0  # of the terminal's line
    self._began = None
    self._next = 0.0
    self.loss = float("nan")

  def after_create_session(self, session, coord):
    if self._began is None:
      if self._is_chief and self._last_example is None:
        self._last_example = self._find_last_example(session)
      self._began = _Begin(
        time.monotonic(), self._tracker.value, self._counter.examples, self._own())
      self._next = time.monotonic() + TIMING.first_report

  def after_run(self, run_context, run_values):
    self.loss = float(self._execution.losses[-1])
    now = time.monotonic()
    if now >= self._next and self._tracker.asked:
      on_terminal = self._stream.isatty()
      self._next = now + (
        TIMING.screen_interval if on_terminal else
        TIMING.first_report if SCREEN_VARIABLE in os.environ else TIMING.report_interval)
      self._say(now, on_terminal)

  def end(self, session):
    if self._width:
      self._stream.write("\n")
      self._stream.flush()

  def figures(self, now: float) -> Figures:
    """Returns the progress at `now`, by the monotonic clock."""
    began = self._began
    seconds = max(now - began.time, 1e-9)
    global_steps, examples = self._tracker.value - began.step, self.examples()
    limits = []
    if self._last_step and global_steps > 0:
      limits.append((self._last_step - self._tracker.value) * seconds / global_steps)
    if self._is_chief and self._last_example and examples > 0:
      so_far = self._before() + examples * self._counter.examples / (
        self._counter.examples - began.examples)
      limits.append((self._last_example - so_far) * seconds / examples)
    steps = global_steps if self._is_chief else self._own() - began.own
    return Figures(self._tracker.value, self._last_step, self.loss, steps / seconds,
                   examples / seconds, max(0.0, min(limits)) if limits else None)

  def examples(self) -> float:
    """Returns about how many examples all workers have trained on since this process began."""
    share = 1.0
    if self._is_chief:
      share = self._share
      if share is None:
        share = (self._tracker.value - self._began.step) / max(1, self._own())
    return share * (self._counter.examples - self._began.examples)

  def text(self, now: float) -> str:
    """Returns the line without its prefix."""
    return str(self.figures(now))

  def _own(self):
    return self._tracker.own_steps + (0 if self._others is None else self._others.steps)

  def _say(self, now, on_terminal):
    if isinstance(self._stream, JsonStream):
      figures = self.figures(now)
      self._stream.log("progress: %s" % (figures,), **figures._asdict())
      return
    if not on_terminal:
      print("%s progress: %s" % (time.strftime(LINE_TIME), self.text(now)), file=self._stream,
            flush=True)
      return
    # A wrapped line cannot be overwritten.
    line = self.text(now)[:shutil.get_terminal_size().columns - 1]
    self._stream.write("\r" + line.ljust(self._width))
    self._stream.flush()
    self._width = len(line)
