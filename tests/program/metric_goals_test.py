from __future__ import annotations

import pytest

from tf1ps.program import metric_goals

pytestmark = pytest.mark.any_tensorflow
NAN = float("nan")


@pytest.mark.parametrize("text, metric, direction", [
  ("accuracy", "accuracy", "max"), ("loss", "loss", "min"), ("test/mean_squared_error",
   "test/mean_squared_error", "min"), ("loss:max", "loss", "max"), ("nll:min", "nll", "min")])
def test_a_goal(text, metric, direction):
  assert metric_goals.parse_metric_goal(text) == (metric, direction)
  assert metric_goals.parse_early_stopping(text + ":3") == ((metric, direction), 3)


@pytest.mark.parametrize("text", ["", ":min", "loss:", "loss:least", "a:min:max"])
def test_what_is_no_goal(text):
  with pytest.raises(ValueError, match="must be METRIC, METRIC:min or METRIC:max"):
    metric_goals.parse_metric_goal(text)


@pytest.mark.parametrize("text", ["loss", "loss:0", "loss:-1", "loss:min", "3", ":3", "loss:x:3"])
def test_what_is_no_early_stopping(text):
  with pytest.raises(ValueError, match="must be METRIC:N or METRIC:min|max:N, with N eval"):
    metric_goals.parse_early_stopping(text)


@pytest.mark.parametrize("direction, value, best, is_better", [
  ("min", 1.0, None, True), ("min", 1.0, 2.0, True), ("min", 2.0, 2.0, False),
  ("max", 1.0, 2.0, False), ("max", 3.0, 2.0, True), ("max", NAN, None, False),
  ("min", NAN, 2.0, False)])
def test_what_is_better(direction, value, best, is_better):
  assert metric_goals.MetricGoal("m", direction).is_better(value, best) is is_better
