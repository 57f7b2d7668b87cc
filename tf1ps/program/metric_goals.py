"""The goal of --keep_best: a metric, and which of two values is better.

This module does not import TensorFlow, because the programs check their flags before that import.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

_MINIMISED = ("loss", "error")  # in the name of a metric
_DIRECTIONS = ("min", "max")


class MetricGoal(NamedTuple):
  """A metric and the direction in which it is better."""

  metric: str
  direction: str  # "min" or "max"
  # The number of consecutive evaluations without an improvement after which the run ends; None: the
  # run continues.
  patience: Optional[int] = None
  least: float = 0.0  # the smallest difference that counts as an improvement for the patience

  def is_better(self, value: float, best: Optional[float], least: float = 0.0) -> bool:
    """Whether a value is better than the best so far by more than `least`; NaN is never better."""
    if value != value or best is None:
      return value == value
    return (best - value if self.direction == "min" else value - best) > least

  def __str__(self):
    return "%s:%s" % self[:2]


def parse_metric_goal(text: str) -> MetricGoal:
  """Parses METRIC, METRIC:min or METRIC:max, each optionally followed by :N or :N:D.

  Without a direction, a metric with "loss" or "error" in its name is minimised, and any other
  metric is maximised.
  Raises ValueError.
  """
  metric, *rest = text.split(":")
  direction = "min" if any(part in metric.lower() for part in _MINIMISED) else "max"
  if rest and rest[0] in _DIRECTIONS:
    direction = rest.pop(0)
  patience = None
  if rest and rest[0].isdigit():
    patience = int(rest.pop(0))
  least = 0.0
  if rest and patience:
    try:
      least = float(rest[0])
      rest = rest[1:] if 0.0 <= least < float("inf") else rest
    except ValueError:
      pass
  if not metric or rest or patience == 0:
    raise ValueError("must be METRIC, METRIC:min or METRIC:max, and may have :N or :N:D behind it, "
                     "for at least 1 evaluation, and a difference of at least 0")
  return MetricGoal(metric, direction, patience, least)
