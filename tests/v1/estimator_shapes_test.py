"""Legacy programs with estimators in their commonest shapes, beyond tf.estimator's own names."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as stock

from tests.v1 import estimator_shapes_tasks as tasks
from tests.v1.estimator_test import assert_all_end, checkpoint_steps, cluster_of

NEWER = pytest.mark.skipif(stock.__version__.startswith("1."), reason="it has all of tf.contrib")


@pytest.mark.parametrize("name", ["tags_of_sequences", "fused_cells"])
def test_computes(name, start):
  task = start(name, getattr(tasks, name))
  assert task.wait() == 0, task.output


@pytest.mark.slow
@pytest.mark.parametrize("name", [
  "changed_optimizers_and_predictions", "tpu_estimator_without_a_tpu"])
def test_trains(name, start, tmp_path):
  task = start(name, getattr(tasks, name), str(tmp_path))
  assert task.wait() == 0, task.output


@NEWER
@pytest.mark.parametrize("name", ["learn_config", "layers_columns"])
def test_contrib(name, start):
  task = start(name, getattr(tasks, name))
  assert task.wait() == 0, task.output


@pytest.mark.slow
@NEWER
@pytest.mark.parametrize("name", ["run_experiment", "other_schedules"])
def test_experiments(name, start, tmp_path):
  task = start(name, getattr(tasks, name), str(tmp_path))
  assert task.wait() == 0, task.output


@pytest.mark.slow
@NEWER
def test_an_experiment_on_a_cluster_ends_by_itself(start, tmp_path):
  cluster = cluster_of()
  job = {(name, 0): start(name, tasks.run_experiment, str(tmp_path), cluster, name)
         for name in ("chief", "worker", "ps", "evaluator")}
  assert_all_end(job)
  assert checkpoint_steps(str(tmp_path))[-1] >= 60
