"""Jobs with several steps of a worker in flight, as a user starts them: real processes."""
from __future__ import annotations

import signal

import pytest

from tests.training.job import Job, codes, find, last_line

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(.*), "
        r"[\d.]+ s, (.*), exit code (\d+)")


@pytest.mark.parametrize("flags", [[], ["--steps_per_execution=4"]])
def test_the_last_step_is_passed_by_less_than_there_are_in_flight(start, flags):
  job = Job(start, num_workers=2, flags=[
    "--steps_in_flight=3", "--batch_size=4", "--steps=1200", *flags])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  ends = [last_line(worker, LAST) for worker in workers]
  steps = sum(end[0] for end in ends)
  assert 1200 <= steps < 1200 + 6
  assert find(workers[0], r" at step (\d+) \(") == [steps]
  assert [end[1] for end in ends] == [4 * end[0] for end in ends]


@pytest.mark.parametrize("flags", [[], ["--steps_per_execution=4"]])
def test_all_data_are_trained_on_and_the_ages_are_reported(start, flags):
  """One worker alone is stale by what it has in flight: 3 at most, or a few of its own runs."""
  job = Job(start, num_workers=1, flags=[
    "--steps_in_flight=4", "--batch_size=4", "--epochs=3", *flags])
  (ps,), (worker,) = job.all()
  assert codes(worker, ps) == [0] * 2, worker.output
  steps, examples, staleness, reason, _ = last_line(worker, LAST)
  assert (steps, examples, reason) == (300, 1200, "went through its data --epochs=3 times")
  assert find(worker, r" at step (\d+) \(") == [300]
  assert float(staleness.split()[2]) > 0.5, staleness


def test_a_nan_in_a_thread_ends_the_job(start):
  job = Job(start, num_workers=1, flags=[
    "--steps_in_flight=3", "--batch_size=4", "--steps=400", "--nan_at=60"])
  (ps,), (worker,) = job.all()
  assert codes(worker, ps) == [1, 1]
  assert find(worker, r"the loss is NaN at global step \d+ \(step \d+ of this (\w+)\)") == [
    "worker"]


def test_a_signal_ends_all_in_flight_and_saves(start, tmp_path):
  job = Job(start, num_workers=1, flags=[
    "--steps_in_flight=3", "--batch_size=4", "--steps=100000", "--step_seconds=0.01",
    "--checkpoint_dir=%s" % tmp_path])
  (ps,), (worker,) = job.all()
  worker.wait_for("progress: ")
  worker.signal(signal.SIGTERM)
  assert worker.wait() == 128 + signal.SIGTERM, worker.output
  assert find(worker, r"saved \S*model.ckpt-(\d+)")[0] > 0
  ps.kill()


def test_a_ps_that_comes_again_is_trained_on(start, tmp_path):
  job = Job(start, num_workers=1, flags=[
    "--steps_in_flight=3", "--batch_size=4", "--steps=1000", "--step_seconds=0.005",
    "--checkpoint_dir=%s" % tmp_path, "--save_checkpoints_steps=50"])
  (ps,), (worker,) = job.all()
  worker.wait_for("model.ckpt-1")
  ps.kill()
  again = job.ps()
  assert codes(worker, again) == [0, 0], worker.output
  assert find(worker, r" at step (\d+) \(")[0] in range(1000, 1003)
