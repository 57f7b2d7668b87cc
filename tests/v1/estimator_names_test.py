"""The names of `tf.estimator` that legacy programs use: the same values on both TensorFlows."""
from __future__ import annotations

import pytest

from tests.v1 import estimator_columns_tasks, estimator_names_tasks


@pytest.mark.slow
@pytest.mark.parametrize("name", [
  "config_fields", "hooks_and_scaffold", "predictions", "exports", "exporters", "warm_starts",
  "inputs", "early_stopping", "files_of_the_package",
  "keras_model", "keras_optimizers"])
def test_a_program_uses(name, start, tmp_path):
  task = start(name, getattr(estimator_names_tasks, name), str(tmp_path / "run"))
  assert task.wait() == 0, task.output
  assert task.output.count("(from tensorflow_estimator.") <= 2  # once, by each of two handlers


@pytest.mark.slow
@pytest.mark.parametrize("name", [
  "dense_columns", "sparse_columns", "heads", "means", "tpu_estimator"])
def test_a_program_builds_on(name, start, tmp_path):
  task = start(name, getattr(estimator_columns_tasks, name), str(tmp_path / "run"))
  assert task.wait() == 0, task.output


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["Linear", "DNN", "DNNLinear", "Baseline"])
def test_canned_estimators(begin, start, tmp_path):
  task = start(begin, estimator_columns_tasks.canned, str(tmp_path / "run"), begin)
  assert task.wait() == 0, task.output
