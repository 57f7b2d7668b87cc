"""Programs whose input is a classic pipeline of queues, in jobs of real processes."""
from __future__ import annotations

import pathlib

import pytest

from tests import clock_tasks
from tests.training import job as job_lib

CLASSIC = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "classic.py")


@pytest.fixture
def data(tmp_path):
  """Two files of a header and 100 records each; returns the function that spoils a line."""
  for name in ("a", "b"):
    rows = ["x,y"] + ["%g,%g" % (x / 100, 3 * x / 100 + 2) for x in range(100)]
    (tmp_path / (name + ".csv")).write_text("\n".join(rows) + "\n")

  def spoil(name, number):
    rows = (tmp_path / name).read_text().splitlines()
    rows[number - 1] = "0.5,none"
    (tmp_path / name).write_text("\n".join(rows) + "\n")

  return spoil


def job(start, tmp_path, *flags, num_workers=2, **arguments):
  one = job_lib.Job(start, num_workers=num_workers, flags=[
    "--data=%s/?.csv" % tmp_path, "--batch_size=10", *flags], **arguments)
  return one, [CLASSIC]


@pytest.mark.slow
def test_two_workers_go_through_their_files(start, tmp_path, data):
  one, program = job(start, tmp_path, "--epochs=3")
  (ps,), workers = one.all(*program)
  assert job_lib.codes(*workers, ps) == [0, 0, 0], workers[0].output
  for worker in workers:
    assert "30 steps, 300 examples" in worker.last_line
    assert "still running" not in worker.output
  assert "(200 examples" in workers[0].output  # evaluated


@pytest.mark.slow
def test_a_bad_field_ends_the_job_and_is_named(start, tmp_path, data):
  data("b.csv", 62)
  start_moved = lambda name, *args: start(name, clock_tasks.run, *args)  # noqa: E731
  one, program = job(
    start_moved, tmp_path, "--epochs=3", heartbeat_timeout=clock_tasks.LIMIT)
  _, (chief, worker) = one.all(*program)
  chief.wait_for("The chief waits 600 s (--heartbeat_timeout) for its restart")
  clock_tasks.begin_silence(chief)
  assert job_lib.codes(chief, worker) == [1, 1]
  assert "%s/b.csv:62: Field 1 in record 0 is not a valid float: none" % tmp_path in (
    worker.last_line)


@pytest.mark.slow
def test_a_missing_file_ends_the_job_and_is_named(start, tmp_path, data):
  one, program = job(start, tmp_path, "--epochs=1", "--more_data=%s/gone" % tmp_path,
                     num_workers=1, heartbeat_timeout=60.0)
  _, (worker,) = one.all(*program)
  assert worker.wait() == 1
  assert "NotFoundError: %s/gone; No such file" % tmp_path in worker.last_line


@pytest.mark.slow
def test_a_ps_that_comes_back_finds_the_queues_open(start, tmp_path, data):
  one, program = job(start, tmp_path, "--steps=100000", num_workers=1)
  ps, worker = one.ps(), one.worker(0, *program)
  worker.wait_for("progress: step")
  ps.kill()
  one.ps()
  worker.wait_for("recovered: session 2")
  since = len(worker.lines)
  worker.wait_for("progress: step", since=since)
  assert worker.is_running
