from __future__ import annotations

import os
import signal

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.checkpoint.damages import latest_intact
from tests.training import local_loop
from tests.training.job import Job, codes, steps


def end_by_itself(task):
  code = task.wait()
  assert "by force" not in task.output, task.output
  return code


@pytest.mark.slow
def test_blocked_workers_are_named_by_the_chief(start, tmp_path):
  go_on = tmp_path / "go on"  # the chief comes to its end when the others stand where they shall
  job = Job(start, num_workers=3, end_timeout=2, flags=["--examples=960"])
  ps, chief = job.ps(), job.worker(0, "--block_at=5", "--block_until=%s" % go_on)
  blocked = [job.worker(index, "--block_at=5") for index in (1, 2)]
  for worker in blocked:
    worker.wait_for("holds step 5")
  blocked[0].signal(signal.SIGINT)
  assert end_by_itself(blocked[0]) == 130
  assert blocked[0].last_line == "worker 1: ended by signal 2, exit code 130"
  go_on.write_text("")
  assert codes(chief, ps) == [1, 1]
  assert ("trained on its part of --examples=960, and the job failed: /job:worker/task:1 failed: "
          "ended by signal 2; /job:worker/task:2 has made no step for 2 s (end_timeout)"
          ) in chief.last_line


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=["SIGHUP", "SIGINT"])
def test_a_drop_in_saves_its_last_step(start, tmp_path, number):
  job = Job(start, num_workers=1, checkpoint_dir=str(tmp_path), step_seconds=0.005)
  job.trainer_ps()
  chief = job.trainer()
  harness.wait_until(lambda: len(steps(chief)) > 20)
  chief.signal(number)
  assert end_by_itself(chief) == 128 + number
  last = "model.ckpt-%d" % steps(chief)[-1].number
  assert latest_intact(tmp_path) == str(tmp_path / last)


@pytest.mark.slow
def test_a_wait_at_the_start_ends_at_a_signal(start):
  job = Job(start)
  workers = [job.trainer(0), job.trainer(1)]
  for worker in workers:
    worker.wait_for("for /job:ps/task:0")
    worker.signal(signal.SIGTERM)
  assert [end_by_itself(worker) for worker in workers] == [143, 143]


def test_a_program_keeps_the_signals_that_it_handles():
  got, steps_made = [], 0
  before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
  try:
    with tf.Graph().as_default():
      model = local_loop.Model()
      with tf1ps.MonitoredTrainingSession() as session:
        while not session.should_stop() and steps_made < 10:
          session.run(model.train_op)
          steps_made += 1
          if steps_made == 3:
            os.kill(os.getpid(), signal.SIGTERM)
  finally:
    signal.signal(signal.SIGTERM, before)
  assert (got, steps_made) == ([signal.SIGTERM], 10)


def test_the_signals_are_the_callers_again_afterwards():
  before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
  with tf.Graph().as_default():
    local_loop.Model()
    with tf1ps.MonitoredTrainingSession():
      inside = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
  assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
  assert not set(inside) & set(before)
