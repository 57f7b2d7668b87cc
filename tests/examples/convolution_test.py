from __future__ import annotations

import importlib.util
import pathlib

import tensorflow.compat.v1 as tf

from tests import program_tasks
from tests.training.job import find

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "convolution.py"


def test_it_learns_or_says_what_is_missing(start, tmp_path, monkeypatch):
  has_layers = tf.__version__.startswith("1.") or importlib.util.find_spec("tf_keras")
  monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1" if has_layers else "0")
  task = start("convolution", program_tasks.run_program, "tf1ps-local", [
    "--program=%s" % PROGRAM, "--replication=all_reduce", "--num_workers=1", "--epochs=8"],
    tmp_path)
  assert task.wait(100) == (0 if has_layers else 1), task.output
  if has_layers:
    assert float(find(task, r"test accuracy ([\d.]+)")[0]) > 0.85
  else:
    assert ("convolution.py:29 in model_fn: AttributeError: `conv2d` is not available with Keras 3."
            in task.output)
    assert "Install tf_keras, and set TF_USE_LEGACY_KERAS=1 in the env" in task.output
