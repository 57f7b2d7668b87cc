"""Jobs with bad records: where a record stands is told, or it is skipped and counted."""
from __future__ import annotations

import pathlib

import pytest

from tests.training.job import Job, codes, find

PROGRAM = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "ranged.py")


@pytest.fixture
def folder(tmp_path):
  """Two files of 150 numbers, with three lines that are none."""
  for name in "ab":
    lines = [str(number) for number in range(150)]
    lines[17] = "x%s" % name
    if name == "b":
      lines[149] = ""
    (tmp_path / (name + ".txt")).write_text("\n".join(lines) + "\n")
  return tmp_path


def run(start, folder, *flags, num_workers=1):
  job = Job(start, num_workers=num_workers, flags=[
    PROGRAM, "--source=datasets", "--folder=%s" % folder, "--epochs=1", "--batch_size=10",
    "--records=20", *flags])
  (ps,), workers = job.all()
  return codes(*workers), workers, ps


@pytest.mark.slow
def test_a_bad_record_ends_the_job_with_its_place(start, folder):
  found, (chief,), _ = run(start, folder)
  assert found == [1]
  assert "%s/a.txt:18: StringToNumberOp could not correctly convert string: xa" % folder \
      in chief.last_line


@pytest.mark.slow
def test_bad_records_are_skipped_and_counted(start, folder):
  found, (chief,), ps = run(start, folder, "--on_bad_record=skip:0.02")
  assert found == [0], chief.output
  assert find(chief, r"steps, (\d+) examples, (\d+) bad records skipped, ") == [297, 3]
  for place in ("a.txt:18", "b.txt:18", "b.txt:150"):
    assert "skipped the bad record %s/%s: " % (folder, place) in chief.output
  assert ps.wait() == 0


@pytest.mark.slow
def test_too_many_bad_records_end_the_job(start, folder):
  found, (chief,), _ = run(start, folder, "--on_bad_record=skip:0.005")
  assert found == [1]
  assert "more than the tolerated ratio of 0.005 (--on_bad_record=skip:R)" in chief.last_line


@pytest.mark.slow
def test_skipped_records_of_ranges_that_are_handed_out(start, folder):
  found, workers, ps = run(start, folder, "--on_bad_record=skip:0.02",
                           "--shard=dynamic", num_workers=2)
  assert found == [0, 0], workers[0].output
  (own,), (others,) = [find(worker, r"steps, (\d+) examples") for worker in workers]
  assert own + others == 297
  assert ps.wait() == 0
