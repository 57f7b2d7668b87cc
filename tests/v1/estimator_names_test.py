"""The names of `tf.estimator` that legacy programs use: the same values on both TensorFlows."""
from __future__ import annotations

import pytest

from tests.v1 import estimator_names_tasks


@pytest.mark.parametrize("name", [
  "config_fields", "hooks_and_scaffold", "predictions", "exports", "exporters", "warm_starts",
  "inputs"])
def test_a_program_uses(name, start, tmp_path):
  task = start(name, getattr(estimator_names_tasks, name), str(tmp_path / "run"))
  assert task.wait() == 0, task.output
