from __future__ import annotations

import pytest

from tests.v1 import tpu_tasks


@pytest.mark.parametrize("name", ["calls", "all_else_works", "estimators"])
def test_a_tpu_is_refused(name, start):
  task = start(name, getattr(tpu_tasks, name))
  assert task.wait() == 0, task.output
