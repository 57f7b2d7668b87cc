"""Training moves between TensorFlow 1.15 and today's, and comes to the same variables."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.v1 import carried_tasks

# Checksums of the variables after 400 steps on TensorFlow 1.15.
EXPECTED = {
  "global_step": 400,
  "conv2d/kernel": 0.0147065, "conv2d/kernel/Momentum": -0.0035863,
  "batch_normalization/gamma": 1.3264348, "batch_normalization/gamma/Momentum": -0.0046658,
  "batch_normalization/beta": -0.3993263, "batch_normalization/beta/Momentum": 0.0332798,
  "batch_normalization/moving_mean": -0.0054747, "batch_normalization/moving_variance": 0.4859481,
  "dense/kernel": 0.0251554, "dense/kernel/Momentum": 0.1217691,
  "dense/bias": 0.3250307, "dense/bias/Momentum": 0.0610770,
}
# The environments of the Makefile: .venv and .venv-legacy, which begin with the same name.
_PREFIX = sys.prefix[:-len("-legacy")] if sys.prefix.endswith("-legacy") else sys.prefix
PYTHONS = [os.path.join(_PREFIX + ending, "bin", "python") for ending in ("", "-legacy")]


def variables_of(output):
  line, = [line for line in output.splitlines() if line.startswith("variables: ")]
  return json.loads(line[len("variables: "):])


@pytest.mark.slow
def test_training_is_that_of_tensorflow_1_15(start, tmp_path):
  for last_step in (200, 400):  # the second goes on from the first's checkpoint
    task = start("training", carried_tasks.train, str(tmp_path), last_step)
    assert task.wait() == 0, task.output
  assert variables_of(task.output) == pytest.approx(EXPECTED, rel=1e-5, abs=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(os.path.exists, PYTHONS)),
                    reason="needs the environments of `make test` and of `make test-legacy`")
@pytest.mark.parametrize("first, then", [PYTHONS, PYTHONS[::-1]], ids=["back", "forth"])
def test_training_moves_to_the_other_tensorflow(first, then, tmp_path):
  for python, last_step in ((first, 200), (then, 400)):
    done = subprocess.run(
        [python, "-m", "tests.v1.carried_tasks", str(tmp_path), str(last_step)],
        stdout=subprocess.PIPE, check=True)
  assert variables_of(done.stdout.decode()) == pytest.approx(EXPECTED, rel=1e-5, abs=1e-5)
