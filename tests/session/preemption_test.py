"""A scheduler ends a task by SIGTERM: the chief saves, and the job goes on without the task."""
from __future__ import annotations

import signal
import time

import pytest

from tests import harness
from tests.training.job import Job, codes, find, steps, wait_for_step
from tf1ps.checkpoint import checkpoints


def make_job(start, tmp_path, **options):
  return Job(start, step_seconds=0.01, checkpoint_dir=str(tmp_path), **options)


@pytest.mark.slow
def test_before_a_ps_ends_the_chief_saves(start, tmp_path):
  job = make_job(start, tmp_path, num_ps=2)
  ps, workers = [job.trainer_ps(0), job.trainer_ps(1)], [job.trainer(0), job.trainer(1)]
  for index in (1, 0):  # ps 0 keeps the heartbeats
    before = wait_for_step(workers[0], find_step(workers[0]) + 50)
    ps[index].signal(signal.SIGTERM)
    assert ps[index].wait() == 143
    assert "/job:ps/task:%d ends, and the chief has saved before" % index in ps[index].output
    saved = wait_for_save(workers[0], before)
    since = [len(worker.lines) for worker in workers]
    ps[index] = job.trainer_ps(index)
    for worker, lines in zip(workers, since):
      worker.wait_for("recovered", since=lines)
    restored, = find(workers[0], r"restored .*/model.ckpt-(\d+)")
    assert restored >= saved  # the chief may have begun another save


def wait_for_save(chief, step):
  """Waits for a save of this step or a later one; a pipe brings its line after the ps has ended."""
  return harness.wait_until(
    lambda: [saved for saved in find(chief, r"saved .*/model.ckpt-(\d+)") if saved >= step],
    what=lambda: "a save from step %d on:\n%s" % (step, chief.output))[0]


def find_step(task):
  return steps(task)[-1].number if steps(task) else 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_ps_without_a_chief_ends_at_once(start, tmp_path, number):
  job = make_job(start, tmp_path, grace=600.0)  # which nobody waits for
  ps, chief = job.trainer_ps(), job.trainer(0)
  wait_for_step(chief, 5)
  if number == signal.SIGTERM:
    chief.kill()
  ps.signal(number)
  # A chief counts as alive for five seconds; Ctrl-C asks nobody.
  assert ps.wait() == 128 + number
  assert "ends, and the chief" not in ps.output


@pytest.mark.slow
def test_when_a_worker_is_ended_the_chief_saves_and_the_others_go_on(start, tmp_path):
  job = make_job(start, tmp_path, num_workers=3)
  job.trainer_ps()
  workers = [job.trainer(index) for index in range(3)]
  for worker in workers:
    before = wait_for_step(worker, 50)
  workers[2].signal(signal.SIGTERM)
  assert workers[2].wait() == 143 and "by force" not in workers[2].output
  workers[0].wait_for("/job:worker/task:2: ended by a signal; the chief saves")
  harness.wait_until(lambda: find(workers[0], r"saved .*/model.ckpt-(\d+)")[0] >= before)
  for worker in workers[:2]:
    wait_for_step(worker, steps(worker)[-1].number + 50)
    assert "recovered" not in worker.output
  back = job.trainer(2)
  assert wait_for_step(back, 1) > before
  for worker in workers[:2]:
    wait_for_step(worker, steps(back)[0].number + 50)
    times = [step.time for step in steps(worker)]
    # A tenth of a second on a quiet machine: nobody waits the 30 s after which a task is lost.
    assert max(later - time for time, later in zip(times, times[1:])) < 25.0


@pytest.mark.slow
def test_when_the_chief_is_ended_it_saves_the_others_go_on_and_its_next_start_takes_over(
    start, tmp_path):
  job = make_job(start, tmp_path, num_workers=2)
  job.trainer_ps()
  chief, worker = job.trainer(0), job.trainer(1)
  before = wait_for_step(chief, 50)
  chief.signal(signal.SIGTERM)
  assert chief.wait() == 143 and "by force" not in chief.output
  assert find(chief, r"saved .*/model.ckpt-(\d+)")[0] >= before
  left = wait_for_step(worker, steps(worker)[-1].number + 50)
  back = job.trainer(0)
  back.wait_for("the servers keep this run's live state")
  assert wait_for_step(back, 1) > left
  wait_for_step(worker, steps(back)[0].number + 50)
  assert "recovered" not in worker.output


@pytest.mark.slow
def test_a_save_after_a_signal_ends_with_the_grace(start, tmp_path):
  job = make_job(start, tmp_path, num_workers=1, hangs_in_save=True, grace=6.0)
  ps, chief = job.trainer_ps(), job.trainer(0)
  wait_for_step(chief, 20)
  began = time.monotonic()
  ps.signal(signal.SIGTERM)
  chief.wait_for("hangs in a save")
  chief.signal(signal.SIGTERM)
  assert codes(chief, ps) == [143, 143]
  assert time.monotonic() - began > 5.0
  assert "still here 6 s after signal 15: leaving by force" in chief.output
  latest = checkpoints.latest_checkpoint(str(tmp_path))
  checkpoints.verify_checkpoint(latest)
  assert latest.endswith("model.ckpt-0")
