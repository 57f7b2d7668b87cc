from __future__ import annotations

import pytest
import tensorflow.compat.v1 as stock

from tests.v1 import contrib_tasks

NEWER = pytest.mark.skipif(stock.__version__.startswith("1."), reason="it has all of tf.contrib")


@pytest.mark.slow
@pytest.mark.parametrize("name", [
  "every_name", "every_way_to_import", "hyperparameters", "datasets", "losses_of_steps"])
def test_a_program_sees(name, start):
  task = start(name, getattr(contrib_tasks, name))
  assert task.wait() == 0, task.output


@NEWER
@pytest.mark.parametrize("name", [
  "what_is_nowhere", "packages_without_heirs", "without_the_extra", "elements_of_lists"])
def test_on_newer_tensorflows(name, start):
  task = start(name, getattr(contrib_tasks, name))
  assert task.wait() == 0, task.output


@NEWER
def test_the_exporter_of_session_bundle_writes_a_saved_model(start, tmp_path):
  task = start("exports", contrib_tasks.exports, str(tmp_path))
  assert task.wait() == 0, task.output


def test_slim_trains_with_our_supervisor(start, tmp_path):
  task = start("slim", contrib_tasks.slim_trains, str(tmp_path))
  assert task.wait() == 0, task.output
  assert task.last_line == "loss 0.0370", task.output
