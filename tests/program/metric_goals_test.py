from __future__ import annotations

import pytest

from tf1ps.program import metric_goals

pytestmark = pytest.mark.any_tensorflow
NAN = float("nan")


@pytest.mark.parametrize("text, metric, direction", [
  ("accuracy", "accuracy", "max"), ("loss", "loss", "min"), ("test/mean_squared_error",
   "test/mean_squared_error", "min"), ("loss:max", "loss", "max"), ("nll:min", "nll", "min")])
def test_a_goal(text, metric, direction):
  assert metric_goals.parse_metric_goal(text) == (metric, direction, None, 0.)
  assert metric_goals.parse_metric_goal(text + ":3") == (metric, direction, 3, 0.)
  assert metric_goals.parse_metric_goal(text + ":3:1e-2") == (metric, direction, 3, .01)


@pytest.mark.parametrize("text", [
  "", ":min", "loss:", "loss:least", "a:min:max", "loss:0", "loss:-1", ":3", "loss:x:3",
  "loss:3:min", "loss:3:-0.1", "loss:3:nan", "loss:3:inf", "loss:3:0.1:2", "loss:min:0.1"])
def test_what_is_no_goal(text):
  with pytest.raises(ValueError, match="must be METRIC, METRIC:min or METRIC:max"):
    metric_goals.parse_metric_goal(text)


@pytest.mark.parametrize("direction, value, best, is_better", [
  ("min", 1.0, None, True), ("min", 1.0, 2.0, True), ("min", 2.0, 2.0, False),
  ("max", 1.0, 2.0, False), ("max", 3.0, 2.0, True), ("max", NAN, None, False),
  ("min", NAN, 2.0, False)])
def test_what_is_better(direction, value, best, is_better):
  assert metric_goals.MetricGoal("m", direction).is_better(value, best) is is_better


@pytest.mark.parametrize("direction, value, is_better", [
  ("min", 1.5, False), ("min", 1.25, True), ("max", 2.5, False), ("max", 2.75, True),
  ("max", 1.0, False), ("max", NAN, False)])
def test_a_difference_may_be_too_small_to_count(direction, value, is_better):
  assert metric_goals.MetricGoal("m", direction).is_better(value, 2.0, 0.5) is is_better
  assert metric_goals.MetricGoal("m", direction).is_better(value, None, 0.5) is (value == value)
