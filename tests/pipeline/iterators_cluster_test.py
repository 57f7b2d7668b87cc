"""Iterators in the sessions of real clusters."""
from __future__ import annotations

import pathlib

import pytest

from tests import harness
from tests.pipeline import dataset_tasks
from tests.training import job as job_lib

PROGRAM = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "elements.py")


@pytest.mark.slow
def test_each_worker_starts_its_own_also_after_a_recovery(start, tmp_path):
  addresses = harness.addresses(3)
  jobs = {"ps": addresses[:1], "worker": addresses[1:]}
  go = tmp_path / "go"
  options = dict(batch=2, steps=40, hold_after=2, go=str(go))
  ps = start("ps", dataset_tasks.serve, jobs)
  workers = [start("worker %d" % index, dataset_tasks.train, jobs, index, options)
             for index in range(2)]
  for worker in workers:
    worker.wait_for("holds")
  ps.kill()
  ps = start("ps", dataset_tasks.serve, jobs)
  go.write_text("")
  assert job_lib.codes(*workers, ps) == [0, 0, 0]
  for index, worker in enumerate(workers):
    assert "on the ps: []" in worker.output
    first = 1000 * index
    found = dataset_tasks.seen(worker)
    assert found[:2] == [[first, first + 1], [first + 2, first + 3]]
    assert found[2] == [first, first + 1], "the recovered session starts from the beginning"


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--structured", "--sync_replicas"]])
def test_a_program_with_a_dataset(start, flags):
  job = job_lib.Job(start, flags=[PROGRAM, "--epochs=2", "--batch_size=7", *flags])
  (ps,), workers = job.all()
  assert job_lib.codes(*workers, ps) == [0, 0, 0]
  for worker in workers:  # 20 records each, twice
    assert "6 steps, 40 examples" in worker.last_line, worker.output
  assert job_lib.find(workers[0], r"\((\d+) examples") == [40]
  assert "test label 19.5" in workers[0].output
