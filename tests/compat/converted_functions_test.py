from __future__ import annotations

import os
import tempfile

import pytest

from tests.compat import converting_tasks
from tf1ps.compat import converted_files, remove_converted_files


def test_the_files_of_converted_functions_are_found_and_removed():
  """Fails where AutoGraph's modules look otherwise in a new TensorFlow."""
  before = converted_files()
  converting_tasks.convert()
  found = converted_files() - before
  assert len(found) == 1 and all(os.path.dirname(path) == tempfile.gettempdir() for path in found)
  remove_converted_files(kept=before)
  try:
    assert not any(map(os.path.exists, found))
    assert all(map(os.path.exists, before))
  finally:  # 1.15 wants to remove them at the end of this process
    for path in found:
      with open(path, "w"):
        pass


@pytest.mark.parametrize("leaves", [converting_tasks.convert, converting_tasks.convert_and_leave])
def test_a_task_leaves_no_files(start, tmp_path, leaves):
  task = start("worker 0", converting_tasks.in_folder, str(tmp_path), leaves)
  assert task.wait() == 0, task.output
  assert "['__autograph" in task.output or "['tmp" in task.output
  assert converting_tasks.files_in(str(tmp_path)) == []


def test_no_directory_for_temporary_files(monkeypatch):
  def fail():
    raise FileNotFoundError("No usable temporary directory found")

  monkeypatch.setattr(tempfile, "gettempdir", fail)
  assert converted_files() == set()
  remove_converted_files()
