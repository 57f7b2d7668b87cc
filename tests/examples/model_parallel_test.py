"""The comparison of split networks, in one process and on two tasks."""
from __future__ import annotations

import pathlib
import re

import pytest

from tests import file_tasks, harness

FILE = str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "model_parallel.py")
BATCH, DEPTH, UNITS, TIMES = 32, 64, 128, 10


def check(output):
  losses = re.findall(r"after 7 steps the loss is (\S+), and split (\S+)", output)
  assert len(losses) == 3, output
  assert all(abs(float(one) - float(other)) < 2e-6 for one, other in losses), output
  assert output.count("worth it") == 3
  sent = [int(value.replace(",", "")) for value in re.findall(r"^split +\S+ +(\S+)$", output, re.M)]
  outputs = 4 * BATCH * UNITS
  # There and back: the first layer's outputs, the second's to the loss, and the gradients of both;
  # the inputs, half of the outputs and their gradients; the first again, at each time. And the
  # learning rate, 4 bytes.
  assert sent == [4 * outputs + 4, 4 * BATCH * DEPTH + outputs + 4, 4 * TIMES * outputs + 4]


@pytest.mark.slow
def test_logical_devices(start):
  task = start("one", file_tasks.run_file, FILE, "--steps=4")
  assert task.wait() == 0, task.output
  check(task.output)


@pytest.mark.slow
def test_two_tasks(start):
  hosts = "--hosts=" + ",".join(harness.addresses(2))
  start("task 1", file_tasks.run_file, FILE, hosts, "--steps=4", "--task_index=1")
  task = start("task 0", file_tasks.run_file, FILE, hosts, "--steps=4")
  assert task.wait() == 0, task.output
  check(task.output)
