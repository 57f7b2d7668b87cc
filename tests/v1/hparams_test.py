from __future__ import annotations

import pytest
import tensorflow.compat.v1 as stock

from tests.v1 import hparams_tasks


def test_as_on_tensorflow_1_15(start):
  task = start("cases", hparams_tasks.cases)
  assert task.wait() == 0, task.output


@pytest.mark.slow
@pytest.mark.skipif(not stock.__version__.startswith("1."), reason="it has no HParams")
def test_every_combination_beside_tensorflow_1_15(start):
  task = start("everything", hparams_tasks.everything)
  assert task.wait() == 0, task.output
  assert int(task.last_line.split()[0]) > 5000
