"""A session that TensorFlow takes long to close: its task has said by then that it is done."""
from __future__ import annotations

import pathlib

import pytest

from tests.training import job as job_lib
from tf1ps.cli import worker

AHEAD = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "ahead.py")


@pytest.mark.slow
def test_a_pipeline_that_is_busy_at_the_end_holds_nobody_up(start):
  job = job_lib.Job(start, num_workers=1)
  ps = job.ps()
  chief = job._program("worker", worker.run, 0, [AHEAD, "--steps=30", "--batch_size=8"])
  chief.wait_for("reads ahead")
  assert job_lib.codes(chief, ps) == [0, 0]
  for trouble in ("could not be notified", "may still be waiting"):
    assert trouble not in chief.output
