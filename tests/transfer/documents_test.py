"""The programs and commands in the pages about transfer run as they stand."""
from __future__ import annotations

import pathlib
import re

import pytest

from tests import docs_test, harness, program_tasks
from tests.replication.documents_test import ROOT, program


@pytest.mark.slow
def test_sparse_by_hand(start, tmp_path):
  path = program("transfer.md", "sparse.py", tmp_path)
  tasks = [start(" ".join(argv), program_tasks.run_file, path.name, argv, tmp_path)
           for argv in (["ps", "0"], ["ps", "1"], ["worker", "0"])]
  docs_test.end_well(tasks)
  assert harness.without_logs(tasks[2].lines)[-2:] == [
    "shards [[50, 4, '/job:ps/task:1'], [50, 4, '/job:ps/task:0']]", "sums 8.0 -8.0"]


@pytest.mark.slow
def test_sparse_by_flags(start, tmp_path):
  (tmp_path / "examples").symlink_to(pathlib.Path(ROOT) / "examples")
  arguments, = [a for a in docs_test.of_program("docs/transfer.md", "tf1ps-local")
                if "bags" in a[0]]
  output = docs_test.launcher(start, arguments, tmp_path)
  assert re.search(r"variables +shards +bytes", output)
  assert re.search(r"test accuracy 0\.[89]", output), output


@pytest.mark.slow
def test_packing_by_hand(start, tmp_path):
  path = program("transfer.md", "packed.py", tmp_path)
  tasks = [start(" ".join(argv), program_tasks.run_file, path.name, argv, tmp_path)
           for argv in (["ps", "0"], ["worker", "0"])]
  docs_test.end_well(tasks)
  assert harness.without_logs(tasks[1].lines)[-2:] == [
    "loss below 0.01: True", "down: 1 tensors for 20 variables"]


@pytest.mark.slow
def test_packing_by_flags(start, tmp_path):
  (tmp_path / "examples").symlink_to(pathlib.Path(ROOT) / "examples")
  arguments, = [a for a in docs_test.of_program("docs/transfer.md", "tf1ps-local")
                if "--overlap=prefetch" in a]
  output = docs_test.launcher(start, arguments, tmp_path)
  assert re.search(r"test accuracy 0\.[89]", output), output
  assert re.search(r"staleness [1-9]\.", output), output


def test_steps_by_hand(start, tmp_path):
  path = program("transfer.md", "steps.py", tmp_path)
  task = start("steps.py", program_tasks.run_file, path.name, [], tmp_path)
  docs_test.end_well([task])
  shown = docs_test.block_with("docs/transfer.md", "11 steps, 220 examples").splitlines()
  assert len(shown) == 3 and task.lines[-3:] == shown
