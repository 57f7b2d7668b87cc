from __future__ import annotations

import datetime

import pytest
import tensorflow.compat.v1 as tf

from tests.survival import matrix, matrix_job, matrix_page, matrix_test, worlds, worlds_job
from tools.chaos.worlds import DRAWN, WORLDS, draw


def chosen():
  """The cells that this run has."""
  for cell in worlds.CELLS:
    if (matrix_test.IS_WHOLE or cell.name in worlds.SAMPLE) and (
        worlds.meaningless(cell, tf.VERSION) is None):
      yield pytest.param(cell, id=cell.name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", list(chosen()))
def test_a_cell_of_a_world_does_what_it_promises(start, tmp_path, cell):
  pace = matrix_test.PACE
  job, seen, output = matrix_test.run(lambda: worlds_job.Job(cell, pace, start, tmp_path))
  promised = worlds.expectation(cell, tf.VERSION)
  found = job.found + matrix_job.problems(matrix.promise(cell.cell, pace, promised), seen)
  matrix_test.keep(dict(
    matrix_page.row(cell.cell, seen, found, pace, tf.VERSION, str(datetime.date.today())),
    world=cell.world), cell.name, "%s\n%s\n%s\n" % (found, seen, output))
  assert not found, "%s\n%s\n%s" % ("; ".join(found), seen, output)


@pytest.mark.any_tensorflow
def test_every_cell_and_every_promise_has_a_meaning():
  names = [cell.name for cell in worlds.CELLS]
  assert len(set(names)) == len(names) and set(worlds.SAMPLE) <= set(names)
  assert {cell.world for cell in worlds.CELLS} == set(WORLDS)
  for cell in worlds.CELLS:
    assert cell.cell in matrix.CELLS or cell.cell.fault in worlds.FAULTS, cell
    assert cell.cell.scheme != "all_reduce"
    assert worlds.meaningless(cell, "2.21.0") is None
  for world, version, promised in worlds.PROMISES:
    fitting = [cell for cell in worlds.CELLS for tensorflow in ("1.15.5", "2.21.0")
               if worlds.meaningless(cell, tensorflow) is None
               and worlds.expectation(cell, tensorflow) is promised]
    assert fitting, (world, version, promised)


@pytest.mark.any_tensorflow
def test_a_seed_draws_each_world_that_every_tensorflow_can_train_in():
  drawn = [draw(seed) for seed in range(40)]
  assert set(drawn) == set(DRAWN) and drawn == [draw(seed) for seed in range(40)]
