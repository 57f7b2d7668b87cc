from __future__ import annotations

import datetime
import os

import pytest
import tensorflow.compat.v1 as tf

from tests import needs
from tests.survival import matrix, matrix_job, matrix_page

PACE = matrix.PACES[os.environ.get("TF1PS_MATRIX_PACE", "quick")]
ROWS = os.environ.get("TF1PS_MATRIX_ROWS")  # a file that gets a line for each cell
LOGS = os.environ.get("TF1PS_MATRIX_LOGS")  # a folder that gets all output of each cell
IS_WHOLE = bool(os.environ.get("TF1PS_MATRIX_WHOLE"))


def chosen():
  """The cells that this run has, as parameters."""
  for cell in matrix.CELLS if IS_WHOLE else matrix.KINDS:
    reason = matrix.known_failing(cell)
    marks = [pytest.mark.xfail(
      strict=not any(matrix.fits(each, cell) for each in matrix.SOMETIMES),
      reason=reason)] if reason else []
    yield pytest.param(cell, id=cell.name, marks=marks)


def run(make):
  """Makes a job and runs it to its end; returns the job, what was seen, and its output."""
  try:
    job = make()
  except matrix_job.NotPermitted as error:
    needs.skip("namespaces", error)
  try:
    return job, job.run(), job.output()
  finally:
    job.close()


def keep(row, name, log):
  """Keeps what a run is asked to keep of a cell."""
  if ROWS:
    matrix_page.add(ROWS, row)
  if LOGS:
    with open(os.path.join(LOGS, name), "w") as file:
      file.write(log)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", list(chosen()))
def test_a_cell_does_what_it_promises(start, tmp_path, cell):
  _, seen, output = run(lambda: matrix_job.Job(matrix.stages(cell), PACE, start, tmp_path))
  found = matrix_job.problems(matrix.promise(cell, PACE), seen)
  keep(matrix_page.row(cell, seen, found, PACE, tf.VERSION, str(datetime.date.today())),
       cell.name, "%s\n%s\n%s\n" % (found, seen, output))
  assert not found, "%s\n%s\n%s" % ("; ".join(found), seen, output)


@pytest.mark.any_tensorflow
def test_each_fault_of_each_role_is_a_kind():
  assert len(matrix.ALL) == 4 * 6 * 4 * 4
  for role in matrix.ROLES:
    for fault in matrix.FAULTS:
      kind = [cell for cell in matrix.KINDS if (cell.role, cell.fault) == (role, fault)]
      assert len(kind) == ((role, fault) != ("evaluator", "cut"))
  assert all(matrix.expectation(cell) for cell in matrix.CELLS)


@pytest.mark.any_tensorflow
def test_every_exception_is_about_a_cell():
  for pattern in list(matrix.KNOWN_FAILING) + [each[:4] for each in matrix.EXPECTATIONS]:
    assert any(matrix.fits(pattern, cell) for cell in matrix.CELLS), pattern


@pytest.mark.any_tensorflow
def test_the_page_is_the_one_that_the_results_make():
  with open(matrix_page.PAGE, encoding="utf-8") as file:
    text = file.read()
  assert matrix_page.with_tables(text, matrix_page.read(matrix_page.RESULTS)) == text, (
    "python -m tests.survival.matrix_page writes the page again")
