"""Draws the loss and the throughput of a job into a PNG at its end (`--summary_image`).

The chief notes the losses of its steps, and every half second the global step. It keeps at most
`_MOST` values of each: when there are more, it drops every second one and notes half as many.
"""

from __future__ import annotations

import logging
import time
from typing import List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import TIMING, error_line

_log = logging.getLogger("tf1ps")
_MOST = 2000
_SMOOTHED = 50  # the parts of the curve over which the drawn mean of the losses is taken


class Point(NamedTuple):
  """The progress of a job at one moment."""

  seconds: float  # since the begin of training
  own: int  # the chief's steps
  step: int  # the global step
  examples: float  # of all workers


class _Thinned(list):
  """A list that keeps at most `_MOST` of its values, evenly."""

  def __init__(self):
    super().__init__()
    self._stride = self._left = 1

  def add(self, value) -> None:
    self._left -= 1
    if self._left:
      return
    self.append(value)
    if len(self) > _MOST:
      del self[1::2]
      self._stride *= 2
    self._left = self._stride


class SummaryImage(tf.train.SessionRunHook):
  """Notes the progress of the chief's loop, and draws it at the end."""

  def __init__(self, path: str, tracker: GlobalStepTracker, progress):
    """Creates the hook; it stands behind the `progress.Progress`, which knows loss and examples."""
    self._path, self._tracker, self._progress = path, tracker, progress
    self.losses: List[tuple] = _Thinned()  # pairs of the chief's steps so far and a batch's loss
    self.points: List[Point] = _Thinned()
    self._began = None
    self._next = 0.0

  def after_create_session(self, session, coord):
    if self._began is None:
      self._began = time.monotonic()
      self._note(self._began)

  def after_run(self, run_context, run_values):
    self.losses.add((self._tracker.own_steps, self._progress.loss))
    now = time.monotonic()
    if now >= self._next and self._tracker.asked:
      self._next = now + TIMING.global_step_interval
      self._note(now)

  def end(self, session):
    if len(self.points) < 3:  # a short job; else the wait for the others would be a slow step
      self._note(time.monotonic())
    try:
      draw(self.losses, self.points).savefig(self._path, format="png", dpi=100)
      _log.info("loss and throughput are drawn in %s", self._path)
    except Exception as error:  # a picture is no reason for a job to fail
      _log.warning("no image could be written into %s, and the job goes on: %s", self._path,
                   error_line(error))

  def _note(self, now):
    self.points.add(Point(
      now - self._began, self._tracker.own_steps, self._tracker.value, self._progress.examples()))


def draw(losses: List[tuple], points: List[Point]):
  """Draws the loss, the steps per second and the examples per second by the global step.

  Args:
    losses: pairs of the chief's steps so far and the loss of a batch.
    points: in the order of time.

  Returns:
    The matplotlib figure.
  """
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(9, 8))
  FigureCanvasAgg(figure)
  panels = figure.subplots(3, 1, sharex=True)
  steps = np.interp([own for own, _ in losses], [point.own for point in points],
                    [point.step for point in points])
  values = [loss for _, loss in losses]
  panels[0].plot(steps, values, color="tab:blue", alpha=0.3, linewidth=0.8,
                 label="of the chief's batches")
  panels[0].plot(steps, _means(values), color="tab:blue", label="mean of the batches around")
  panels[0].legend(loc="upper right")
  is_wide = bool(values) and min(values) > 0 and max(values) > 30 * min(values)
  panels[0].set_ylabel("loss (log scale)" if is_wide else "loss")
  panels[0].set_yscale("log" if is_wide else "linear")
  spans = [(one, other) for one, other in zip(points, points[1:])
           if other.seconds > one.seconds and other.step > one.step]
  for panel, name in ((panels[1], "step"), (panels[2], "examples")):
    rates = [(getattr(b, name) - getattr(a, name)) / (b.seconds - a.seconds) for a, b in spans]
    panel.plot([(a.step + b.step) / 2 for a, b in spans], rates, color="tab:green",
               marker="." if len(rates) < 60 else "")
    panel.set_ylabel("%s/s, all workers" % name.replace("step", "steps"))
    panel.set_ylim(bottom=0)
  panels[2].set_xlabel("global step")
  first, last = points[0], points[-1]
  figure.suptitle("%s steps and %s examples in %.0f s" % (
    format(last.step - first.step, ","), format(round(last.examples - first.examples), ","),
    last.seconds - first.seconds))
  for panel in panels:
    panel.grid(alpha=0.3)
  figure.tight_layout()
  return figure


def _means(values: List[float]) -> List[float]:
  """Returns the mean of the values around each one."""
  reach = len(values) // (2 * _SMOOTHED)
  around = [values[max(0, i - reach):i + reach + 1] for i in range(len(values))]
  return [sum(part) / len(part) for part in around]
