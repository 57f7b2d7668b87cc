"""Prints the job's progress.

Every few seconds `Progress` prints a line, such as "13:05:59 progress: step 41". On a terminal it
overwrites its last line. For a launcher that shows a line per task (`SCREEN_VARIABLE`), every
worker prints a line each second. The chief's line has the rates of the job; the line of each other
worker has the rates of that worker.

A rate covers the time since the last line, or about a second if lines are more frequent. No rate
includes the first step of a session, in which TensorFlow and the devices prepare.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import LINE_TIME, SCREEN_VARIABLE, TIMING, JsonStream
from tf1ps.training.counts import Counts


class Figures(NamedTuple):
  """The progress of a job, or of one worker."""

  step: int  # the global step
  last_step: Optional[int]  # at which the job ends
  loss: float
  steps_per_sec: Optional[float]  # None directly after the first step
  examples_per_sec: Optional[float]
  seconds_left: Optional[float]
  share: Optional[float]  # of the job's work that is done, 0 to 1

  def __str__(self):
    parts = ["step %d" % self.step]
    if self.last_step:
      parts[0] += " of %d" % self.last_step
    elif self.share is not None:
      parts[0] += " (%d%%)" % (100 * self.share)
    parts.append("loss %.4f" % self.loss)
    if self.steps_per_sec is not None:
      parts += ["%.1f steps/s" % self.steps_per_sec, "%.0f examples/s" % self.examples_per_sec]
    if self.seconds_left is not None:
      parts.append(_duration(int(self.seconds_left + 0.5)) + " left")
    return ", ".join(parts)


def _duration(seconds: int) -> str:
  """Returns "2:05" (minutes, seconds), "2 h 5 min" or "3 d 4 h"."""
  if seconds < 3600:
    return "%d:%02d" % divmod(seconds, 60)
  if seconds < 86400:
    return "%d h %d min" % (seconds // 3600, seconds // 60 % 60)
  return "%d d %d h" % (seconds // 86400, seconds // 3600 % 24)


class _Mark(NamedTuple):
  """A moment of this process's training."""

  time: float  # by the monotonic clock
  step: int  # the global step
  examples: int  # as counted so far
  own: int  # this worker's steps


class Progress(tf.train.SessionRunHook):
  """Prints the job's progress; it assumes that all workers have batches of this worker's size."""

  def __init__(self, counts: Counts, last_step: Optional[int] = None, stream=None,
               share: Optional[float] = None, last_example: Optional[int] = None,
               is_chief: bool = True,
               find_last_example: Callable[[tf.Session], Optional[int]] = lambda session: None):
    """Creates the hook; it must come after the hooks that count.

    Args:
      counts: the loop's ledger.
      last_step: the global step at which the job ends, or None.
      stream: the stream to write to; None: stdout.
      share: the examples of all workers per counted example; None: the ratio of global
        steps to own steps.
      last_example: the examples of all workers at which the job ends, or None.
      is_chief: False: the rates are those of this worker alone.
      find_last_example: returns `last_example` in the first session if it was not given.
    """
    self._find_last_example = find_last_example
    self._last_example, self._is_chief, self._share = last_example, is_chief, share
    self._counts, self._tracker, self._last_step = counts, counts.tracker, last_step
    self._stream = stream or sys.stdout
    self._width = 0  # of the terminal's line
    self._began: Optional[_Mark] = None  # this process's training
    self._since: Optional[_Mark] = None  # the start of the rates, after a session's first step
    self._next = 0.0
    self.loss = float("nan")

  def after_create_session(self, session, coord):
    self._since = None
    if self._began is None:
      if self._is_chief and self._last_example is None:
        self._last_example = self._find_last_example(session)
      self._began = self._mark(time.monotonic())
      self._next = self._began.time + TIMING.first_report

  def _mark(self, now: float) -> _Mark:
    return _Mark(now, self._tracker.value, self._counts.examples, self._counts.steps)

  def after_run(self, run_context, run_values):
    self.loss = float(self._counts.losses[-1])
    if not self._tracker.asked:
      return
    now = time.monotonic()
    if self._since is None:
      self._since = self._mark(now)
    if now >= self._next:
      on_terminal = self._stream.isatty()
      self._next = now + (
        TIMING.screen_interval if on_terminal else
        TIMING.first_report if SCREEN_VARIABLE in os.environ else TIMING.report_interval)
      self._say(now, on_terminal)
      if now - self._since.time >= TIMING.first_report:
        self._since = self._mark(now)

  def end(self, session):
    if self._width:
      self._stream.write("\n")
      self._stream.flush()

  def figures(self, now: float) -> Figures:
    """Returns the progress at `now`, by the monotonic clock."""
    since = self._since or self._mark(now)
    seconds, step = now - since.time, self._tracker.value
    global_steps = step - since.step
    examples = self._all_examples(since)
    limits, shares = [], []
    if self._last_step and step > self._began.step:
      limits.append((self._last_step - step, global_steps))
      shares.append(step / self._last_step)
    if self._is_chief and self._last_example and self._counts.examples > self._began.examples:
      so_far = self._counts.examples_before + self._counts.examples * (
        self._all_examples(self._began) / (self._counts.examples - self._began.examples))
      limits.append((self._last_example - so_far, examples))
      shares.append(so_far / self._last_example)
    left = [missing * seconds / made for missing, made in limits if made > 0 and seconds > 0]
    steps = global_steps if self._is_chief else self._counts.steps - since.own
    return Figures(step, self._last_step, self.loss, steps / seconds if seconds > 0 else None,
                   examples / seconds if seconds > 0 else None,
                   max(0.0, min(left)) if left else None,
                   min(1.0, max(shares)) if shares else None)

  def _all_examples(self, since: _Mark) -> float:
    """Returns about how many examples all workers have trained on since a moment."""
    share = 1.0
    if self._is_chief:
      share = self._share
      if share is None:
        share = (self._tracker.value - since.step) / max(1, self._counts.steps - since.own)
    return share * (self._counts.examples - since.examples)

  def text(self, now: float) -> str:
    """Returns the line without its prefix."""
    return str(self.figures(now))

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
