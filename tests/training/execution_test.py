"""Jobs of several steps per run: in this process, and as a user starts them."""
from __future__ import annotations

import functools

import pytest

from tests.training import local_job
from tests.training.dynamic_ranges_test import files, train_all_twice  # noqa: F401
from tests.training.job import Job, codes, find, last_line
from tf1ps.training.outcome import NanLossError

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(.*), "
        r"[\d.]+ s, (.*), exit code (\d)")


@pytest.mark.parametrize("options, steps, examples, reason", [
  pytest.param(dict(steps=45), 45, 180, "reached --steps=45", marks=pytest.mark.slow),
  pytest.param(dict(examples=187), 47, 188, "trained on its part of --examples=187",
               marks=pytest.mark.slow),
  (dict(epochs=1, batch_size=12), 34, 400, "went through its data --epochs=1 times")])
def test_one_worker_ends_at_the_very_step(options, steps, examples, reason):
  outcome = local_job.train(**dict(
    dict(batch_size=4, steps_per_execution=8), **options))
  assert (outcome.steps, outcome.examples, outcome.reason) == (steps, examples, reason)
  assert outcome.staleness == "" and outcome.global_step == steps


@pytest.mark.slow
def test_two_workers_go_over_the_last_step_by_less_than_their_number(start):
  job = Job(start, num_workers=2, flags=[
    "--steps_per_execution=4", "--batch_size=4", "--steps=300"])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  ends = [last_line(worker, LAST) for worker in workers]
  assert sum(end[0] for end in ends) in (300, 301)
  assert [end[1] for end in ends] == [4 * end[0] for end in ends]
  assert all("staleness" in end[2] for end in ends)


@pytest.mark.slow
def test_a_nan_within_a_run_is_told_with_its_step():
  with pytest.raises(NanLossError, match=r"the loss is NaN at global step 6 \(step 6 of this"):
    local_job.train(functools.partial(local_job.line_input, nan_at=22),
                    batch_size=4, steps_per_execution=4, steps=40)


@pytest.mark.slow
def test_a_worker_that_is_killed_within_a_run_comes_back(start):
  job = Job(start, flags=["--steps_per_execution=4", "--batch_size=4", "--steps=300",
                          "--step_seconds=0.01"])
  ps, chief = job.ps(), job.worker(0)
  worker = job.worker(1, "--slow_index=1", "--block_at=31")  # the third step of its run
  worker.wait_for("holds step 31")
  worker.kill()
  again = job.worker(1)
  assert codes(chief, again, ps) == [0] * 3, chief.output
  ends = [last_line(task, LAST) for task in (chief, again)]
  # What the killed one made beyond its last heartbeat is in the global step alone.
  assert find(chief, r" at step (\d+) \(")[0] in (300, 301)
  assert all(end[1] >= 4 * end[0] for end in ends) and ends[1][0] > 0


@pytest.mark.slow
def test_a_ps_that_is_lost_within_a_run_is_restored(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, num_workers=1, flags=[
    "--steps_per_execution=4", "--batch_size=4", "--steps=100", "--block_at=31",
    "--block_until=%s" % gate, "--checkpoint_dir=%s" % (tmp_path / "ck"),
    "--save_checkpoints=steps:8"])
  (ps,), (worker,) = job.all()
  worker.wait_for("holds step 31")
  ps.kill()
  again = job.ps()
  gate.write_text("")
  assert codes(worker, again) == [0, 0], worker.output
  assert find(worker, r" at step (\d+) \(") == [100]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["blocks", "datasets"])
def test_ranges_that_are_handed_out_are_each_trained_on_once(  # noqa: F811
    start, tmp_path, files, source):  # noqa: F811
  flag, numbers = files
  if source == "blocks":
    flag = "--records=%d" % len(numbers)
  workers = train_all_twice(
    start, tmp_path, numbers, "--source=" + source, "--steps_per_execution=4", flag)
  assert find(workers[0], r"trained on more than once: (\d+)") == [0]
