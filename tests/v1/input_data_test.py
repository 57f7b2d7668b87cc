from __future__ import annotations

import pytest

from tests.v1 import input_data_tasks


@pytest.mark.parametrize("name", ["reads", "refuses", "network"])
def test_mnist(name, start, tmp_path):
  task = start(name, getattr(input_data_tasks, name), str(tmp_path))
  assert task.wait() == 0, task.output
