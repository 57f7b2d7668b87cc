"""Jobs with several steps of a worker in flight: in this process, and as a user starts them."""
from __future__ import annotations

import functools
import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_job
from tests.training.job import Job, codes, find, last_line
from tf1ps.training import parallel_steps
from tf1ps.training.outcome import NanLossError

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(.*), "
        r"[\d.]+ s, (.*), exit code (\d+)")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [
  [], pytest.param(["--steps_per_execution=4"], marks=pytest.mark.slow)])
def test_the_last_step_is_passed_by_less_than_there_are_in_flight(start, flags):
  job = Job(start, num_workers=2, flags=[
    "--overlap=3", "--batch_size=4", "--steps=600", *flags])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  ends = [last_line(worker, LAST) for worker in workers]
  steps = sum(end[0] for end in ends)
  assert 600 <= steps < 600 + 6
  assert find(workers[0], r" at step (\d+) \(") == [steps]
  assert [end[1] for end in ends] == [4 * end[0] for end in ends]


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_all_data_are_trained_on_and_the_ages_are_reported(steps_per_execution):
  """One worker alone is stale by what it has in flight: 3 at most, or a few of its own runs."""
  outcome = local_job.train(
    overlap=4, batch_size=4, epochs=3, steps_per_execution=steps_per_execution)
  assert (outcome.steps, outcome.examples, outcome.reason) == (
    300, 1200, "went through its data --epochs=3 times")
  assert outcome.global_step == 300
  assert float(outcome.staleness.split()[1]) > 0.5, outcome.staleness


@pytest.mark.slow
def test_a_nan_in_a_thread_ends_the_job():
  with pytest.raises(NanLossError, match=(
      r"the loss is NaN at global step \d+ \(step \d+ of this worker\)")):
    local_job.train(functools.partial(local_job.line_input, nan_at=240),
                    overlap=3, batch_size=4, steps=400)


@pytest.mark.slow
def test_a_signal_ends_all_in_flight_and_saves(start, tmp_path):
  job = Job(start, num_workers=1, flags=[
    "--overlap=3", "--batch_size=4", "--steps=100000", "--step_seconds=0.01",
    "--checkpoint_dir=%s" % tmp_path])
  (ps,), (worker,) = job.all()
  worker.wait_for("progress: ")
  worker.signal(signal.SIGTERM)
  assert worker.wait() == 128 + signal.SIGTERM, worker.output
  assert find(worker, r"saved \S*model.ckpt-(\d+)")[0] > 0
  ps.kill()


@pytest.mark.slow
def test_a_ps_that_comes_again_is_trained_on(start, tmp_path):
  job = Job(start, num_workers=1, flags=[
    "--overlap=3", "--batch_size=4", "--steps=400", "--step_seconds=0.005",
    "--checkpoint_dir=%s" % tmp_path, "--save_checkpoints=steps:50"])
  (ps,), (worker,) = job.all()
  worker.wait_for("model.ckpt-1")
  ps.kill()
  again = job.ps()
  assert codes(worker, again) == [0, 0], worker.output
  assert find(worker, r" at step (\d+) \(")[0] in range(400, 403)


def test_a_session_that_recovers_at_the_end_starts_no_thread():
  goes_on = threading.Event()

  class Held(parallel_steps.InGraphThreads):
    def _step(self, name, session):
      return goes_on.wait(60)

  def alive():
    return [one.name for one in threading.enumerate() if one.name == "tf1ps: replica held"]

  hook, coord = Held({"held": None}, None, None, None), tf.train.Coordinator()
  try:
    hook.after_create_session(None, coord)
    assert len(alive()) == 1
    goes_on.set()
    hook.finish_steps(None)
    goes_on.clear()
    hook.after_create_session(None, coord)
    assert not alive()
  finally:
    goes_on.set()
    coord.request_stop()
