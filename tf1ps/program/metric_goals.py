"""Which value of a metric is better, for --keep_best and --early_stopping.

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

  def is_better(self, value: float, best: Optional[float]) -> bool:
    """Whether a value is better than the best so far; NaN never is."""
    if value != value or best is None:
      return value == value
    return value < best if self.direction == "min" else value > best

  def __str__(self):
    return "%s:%s" % self


class EarlyStopping(NamedTuple):
  """When an evaluator ends a run early."""

  goal: MetricGoal
  patience: int  # the evaluations in a row without an improvement after which the run ends


def parse_metric_goal(text: str) -> MetricGoal:
  """Parses METRIC, METRIC:min or METRIC:max; raises ValueError.

  Without a direction, a metric with "loss" or "error" in its name is minimised, others maximised.
  """
  metric, has_direction, direction = text.partition(":")
  if not metric or has_direction and direction not in _DIRECTIONS:
    raise ValueError("must be METRIC, METRIC:min or METRIC:max")
  if not has_direction:
    direction = "min" if any(part in metric.lower() for part in _MINIMISED) else "max"
  return MetricGoal(metric, direction)


def parse_early_stopping(text: str) -> EarlyStopping:
  """Parses METRIC:PATIENCE or METRIC:min|max:PATIENCE; raises ValueError."""
  goal, _, patience = text.rpartition(":")
  try:
    parsed = parse_metric_goal(goal)
  except ValueError:
    parsed = None
  if parsed is None or not patience.isdigit() or int(patience) < 1:
    raise ValueError("must be METRIC:N or METRIC:min|max:N, with N evaluations of at least 1")
  return EarlyStopping(parsed, int(patience))
