"""Jobs whose steps are of several batches: in this process, and as a user starts them."""
from __future__ import annotations

import pytest

from tests.training import local_job
from tests.training.dynamic_ranges_test import files, train_all_twice  # noqa: F401
from tests.training.job import Job, codes, find, last_line

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(.*), "
        r"[\d.]+ s, (.*), exit code (\d)")


@pytest.mark.slow
@pytest.mark.parametrize("options", [
  {}, dict(steps_per_execution=3), pytest.param(dict(sync_replicas=True), marks=pytest.mark.slow),
  pytest.param(dict(staleness_policy="drop:3"), marks=pytest.mark.slow)])
def test_a_part_of_the_batches_is_trained_on_at_the_end(options):
  """400 examples in batches of 12: 34 of them, in steps of 4: the last is of two, 12 and 4."""
  outcome = local_job.train(gradient_accumulation_steps=4, batch_size=12, epochs=1, **options)
  assert (outcome.steps, outcome.examples, outcome.reason) == (
    9, 400, "went through its data --epochs=1 times")
  assert outcome.global_step == 9 and not outcome.late
  assert outcome.staleness == ""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--sync_replicas", "--on_uneven=shrink"], []])
def test_two_workers(start, flags):
  job = Job(start, num_workers=2, flags=[
    "--gradient_accumulation_steps=3", "--batch_size=10", "--epochs=1", *flags])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  assert [last_line(worker, LAST)[:2] for worker in workers] == [[7, 200]] * 2
  assert find(workers[0], r" at step (\d+) \(") == [7 if flags else 14]


@pytest.mark.slow
def test_ranges_that_are_handed_out_are_each_trained_on_once(start, tmp_path, files):  # noqa: F811
  flag, numbers = files
  train_all_twice(start, tmp_path, numbers, "--source=datasets", "--gradient_accumulation_steps=3",
                  flag)
