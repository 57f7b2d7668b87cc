from __future__ import annotations

import pathlib

import pytest
import tensorflow.compat.v1 as tf

from tests import program_tasks
from tests.training.job import find

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "convolution.py"


def run(start, tmp_path, use_legacy_keras):
  task = start("convolution", program_tasks.run_program, "tf1ps-local", [
    "--program=%s" % PROGRAM, "--replication=all_reduce", "--num_workers=1", "--epochs=8"],
    tmp_path, TF_USE_LEGACY_KERAS=use_legacy_keras)
  return task.wait(100), task


@pytest.mark.slow
def test_it_learns(start, tmp_path):
  code, task = run(start, tmp_path, "1")
  assert code == 0 and float(find(task, r"test accuracy ([\d.]+)")[0]) > 0.85, task.output


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="it has its own layers")
def test_it_says_what_is_missing(start, tmp_path):
  code, task = run(start, tmp_path, "0")
  assert code == 1 and (
      "convolution.py:29 in model_fn: AttributeError: `conv2d` is not available with Keras 3."
      in task.output)
  assert "Install tf_keras, and set TF_USE_LEGACY_KERAS=1 in the env" in task.output
