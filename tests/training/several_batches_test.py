"""Jobs whose steps are of several batches, as a user starts them: real processes."""
from __future__ import annotations

import pytest

from tests.training.dynamic_ranges_test import files, train_all_twice  # noqa: F401
from tests.training.job import Job, codes, find, last_line

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(.*), "
        r"[\d.]+ s, (.*), exit code (\d)")


@pytest.mark.parametrize("flags", [
  [], ["--steps_per_execution=3"], pytest.param(["--sync_replicas"], marks=pytest.mark.slow),
  pytest.param(["--staleness_policy=drop:3", "--variables=ref"], marks=pytest.mark.slow)])
def test_a_part_of_the_batches_is_trained_on_at_the_end(start, flags):
  """400 examples in batches of 12: 34 of them, in steps of 4: the last is of two, 12 and 4."""
  job = Job(start, num_workers=1, flags=[
    "--gradient_accumulation_steps=4", "--batch_size=12", "--epochs=1", *flags])
  (ps,), (worker,) = job.all()
  assert codes(worker, ps) == [0] * 2, worker.output
  assert last_line(worker, LAST) == [9, 400, "", "went through its data --epochs=1 times", 0]
  assert find(worker, r" at step (\d+) \(") == [9]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--sync_replicas", "--on_uneven=shrink"], []])
def test_two_workers(start, flags):
  job = Job(start, num_workers=2, flags=[
    "--gradient_accumulation_steps=3", "--batch_size=10", "--epochs=1", *flags])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  assert [last_line(worker, LAST)[:2] for worker in workers] == [[7, 200]] * 2
  assert find(workers[0], r" at step (\d+) \(") == [7 if flags else 14]


def test_ranges_that_are_handed_out_are_each_trained_on_once(start, tmp_path, files):  # noqa: F811
  flag, numbers = files
  train_all_twice(start, tmp_path, numbers, "--source=datasets", "--gradient_accumulation_steps=3",
                  flag)
