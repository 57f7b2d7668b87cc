"""A program that reads by queues, from memory and from a generator, as a job of two workers."""
from __future__ import annotations

import pathlib
import re

import pytest

from tests import program_tasks

PROGRAM = str(pathlib.Path(__file__).resolve().parents[1] / "programs" / "sources.py")


@pytest.mark.slow
def test_a_program_trains_and_evaluates_on_all_sources(start, tmp_path):
  for number in range(4):
    (tmp_path / ("%d.txt" % number)).write_text(
      "".join("%d\n" % row for row in range(10 * number, 10 * number + 10)))
  task = start("tf1ps-local", program_tasks.run_program, "tf1ps-local", [
    "--program=" + PROGRAM, "--rows=" + str(tmp_path / "*.txt"), "--count=40", "--num_ps=1",
    "--num_workers=2", "--epochs=3", "--batch_size=7"], tmp_path)
  assert task.wait() == 0, task.output
  # 20 rows a worker and epoch: 60, in eight batches of seven and one of four.
  assert "global step 18 in" in task.output
  assert "examples by worker: worker 0: 60, worker 1: 60" in task.output
  for name in ("readers", "preloaded", "feeding"):
    assert re.search(r"test %s 19\.5000, .*40 examples" % name, task.output), task.output
