from __future__ import annotations

import pytest

from tests.training import shared_statistics_tasks


@pytest.mark.slow
def test_replicas_move_the_averages_of_a_layer_by_their_parts(start):
  task = start("batch normalization", shared_statistics_tasks.check_all)
  assert task.wait() == 0, task.output
