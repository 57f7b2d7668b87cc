from __future__ import annotations

import os
import signal
import time

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.training import local_loop
from tests.training.job import Job, codes, steps
from tf1ps.training import checkpoints


def end_within(task, seconds):
  began = time.monotonic()
  code = task.wait(seconds + 5)
  assert time.monotonic() - began < seconds, task.output
  return code


def test_a_blocked_worker_leaves_at_a_signal_and_the_chief_names_it(start):
  job = Job(start, flags=["--examples=640"])
  ps, chief, worker = job.ps(), job.worker(0), job.worker(1, "--block_at=5", "--slow_index=1")
  worker.wait_for("holds step 5")
  worker.signal(signal.SIGINT)
  assert end_within(worker, 5) == 130
  assert worker.lines[-1] == "worker 1: ended by signal 2, exit code 130"
  assert codes(chief, ps) == [1, 0]
  assert "the job failed: /job:worker/task:1 failed: ended by signal 2" in chief.lines[-1]


def test_a_worker_that_makes_no_step_is_given_up(start):
  job = Job(start, flags=["--examples=640", "--end_timeout=2"])
  ps, chief, worker = job.ps(), job.worker(0), job.worker(1, "--block_at=5", "--slow_index=1")
  worker.wait_for("holds step 5")
  assert codes(chief, ps) == [1, 0]
  assert "/job:worker/task:1 has made no step for 2 s (--end_timeout)" in chief.lines[-1]
  # It hangs, and leaves all the same when the job has ended.
  assert end_within(worker, 10) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_drop_in_saves_its_last_step(start, tmp_path, number):
  job = Job(start, num_workers=1, checkpoint_dir=str(tmp_path), step_seconds=0.005)
  job.trainer_ps()
  chief = job.trainer()
  harness.wait_until(lambda: len(steps(chief)) > 20)
  chief.signal(number)
  assert end_within(chief, 5) == 128 + number
  last = "model.ckpt-%d" % steps(chief)[-1].number
  assert checkpoints.latest(str(tmp_path), verify_data=True) == str(tmp_path / last)


def test_a_wait_at_the_start_ends_at_a_signal(start):
  job = Job(start, start_timeout=60.0)
  workers = [job.trainer(0), job.trainer(1)]
  for worker in workers:
    worker.wait_for("for /job:ps/task:0")
    worker.signal(signal.SIGTERM)
  assert [end_within(worker, 5) for worker in workers] == [143, 143]


def train(directory, at_step_3, max_steps=1000):
  with tf.Graph().as_default():
    model = local_loop.Model()
    count = 0
    with tf1ps.MonitoredTrainingSession(checkpoint_dir=str(directory)) as session:
      while not session.should_stop() and count < max_steps:
        session.run(model.train_op)
        count += 1
        if count == 3:
          at_step_3()
    return count


def test_a_signal_ends_the_loop_after_its_step(tmp_path):
  before = signal.getsignal(signal.SIGTERM)

  def send():
    os.kill(os.getpid(), signal.SIGTERM)

  with pytest.raises(SystemExit) as caught:
    train(tmp_path, send)
  assert caught.value.code == 143
  step = checkpoints.global_step_of(checkpoints.latest(str(tmp_path)))
  assert 3 <= step < 1000
  assert signal.getsignal(signal.SIGTERM) is before


def test_a_program_keeps_the_signals_that_it_handles(tmp_path):
  got = []
  before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
  try:
    assert train(tmp_path, lambda: os.kill(os.getpid(), signal.SIGTERM), max_steps=10) == 10
  finally:
    signal.signal(signal.SIGTERM, before)
  assert got == [signal.SIGTERM]
