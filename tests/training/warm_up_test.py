"""Jobs with --staleness_policy=warm_up, as a user starts them: real processes."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_server
from tests.training.job import Job, codes, find, last_line
from tf1ps.checkpoint import global_step
from tf1ps.replication import clocks
from tf1ps.session import membership as membership_lib
from tf1ps.training import warm_up

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(?:, staleness .*)?, "
        r"[\d.]+ s, (.*), exit code (\d)")


@pytest.mark.slow
def test_workers_join_one_by_one(start):
  job = Job(start, num_workers=3, flags=[
    "--staleness_policy=warm_up:40", "--steps=120", "--batch_size=4", "--step_seconds=0.01"])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 4
  steps = [last_line(worker, LAST)[0] for worker in workers]
  assert find(workers[0], r"global step (\d+) in ") == [sum(steps)]
  assert steps[0] >= 55 and steps[1] <= 60 and steps[2] <= 40
  assert steps[0] > steps[1] > steps[2] > 0
  for i in (1, 2):
    workers[i].wait_for(
      "waiting for global step %d to begin (--staleness_policy=warm_up)" % (40 * i))


@pytest.mark.slow
def test_a_job_that_ends_before_a_worker_s_turn_ends_well(start):
  job = Job(start, flags=["--staleness_policy=warm_up:1000", "--steps=60", "--step_seconds=0.01"])
  (ps,), (chief, worker) = job.all()
  assert codes(chief, worker, ps) == [0, 0, 0]
  assert last_line(chief, LAST)[0] == 60
  assert last_line(worker, LAST) == [0, 0, "reached --steps=60", 0]


@pytest.mark.slow
def test_where_those_before_have_left_the_next_one_begins(start):
  job = Job(start, num_workers=3, flags=[
    "--staleness_policy=warm_up:1000,max_lead:2", "--epochs=2", "--batch_size=10"])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 4
  ends = [last_line(worker, LAST.replace("staleness", "(?:staleness|lead)")) for worker in workers]
  assert sum(end[1] for end in ends) == 800
  assert {end[2] for end in ends} == {"went through its data --epochs=2 times"}


@pytest.mark.slow
def test_a_chief_that_is_lost_is_named(start):
  job = Job(start, heartbeat_timeout=4.0, flags=["--staleness_policy=warm_up:1000", "--steps=2000"])
  ps, chief, worker = job.ps(), job.worker(0, "--block_at=10"), job.worker(1)
  worker.wait_for("waiting for global step 1000 to begin")
  chief.wait_for("holds step 10")
  chief.kill()
  assert worker.wait() == 1
  assert ("TaskLostError: this worker waits for global step 1000 "
          "(--staleness_policy=warm_up), but the "
          "chief /job:worker/task:0 is lost: silent for") in worker.last_line
  ps.kill()


@pytest.mark.slow
def test_a_signal_ends_the_wait(start):
  job = Job(start, flags=["--staleness_policy=warm_up:1000", "--steps=2000"])
  ps, chief, worker = job.ps(), job.worker(0, "--block_at=10"), job.worker(1)
  worker.wait_for("waiting for global step 1000 to begin")
  worker.signal()
  assert worker.wait() == 128 + 15
  assert "leaving by force" not in worker.output
  for one in (chief, ps):
    one.kill()


def test_no_steps_are_no_warm_up():
  part = membership_lib.Membership(local_server.record("warm_up"))
  with tf.Graph().as_default():
    own = clocks.Clocks(tf.train.get_or_create_global_step(), 3, 1)
    with pytest.raises(ValueError, match="steps_each must be at least 1, got 0"):
      warm_up.WarmUp(own, 0, global_step.GlobalStepTracker(), part)
