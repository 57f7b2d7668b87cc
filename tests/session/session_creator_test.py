"""Starts and recoveries of a job: real ps and workers, killed, stopped and started again."""
from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest

from tests import harness
from tests.training import job as job_lib
from tests.training import legacy_trainer
from tests.training.job import Job, codes, find, steps, wait_for_step
from tf1ps.checkpoint import checkpoints


def wait_seconds(seconds):
  began = time.monotonic()
  harness.wait_until(lambda: time.monotonic() - began >= seconds)


def session_time(task):
  return float(task.wait_for("session at ").split()[-1])


def test_a_worker_trains_as_soon_as_its_late_chief_does(start):
  job = Job(start, steps=100)
  ps, worker = job.trainer_ps(), job.trainer(1)
  worker.wait_for("waiting for the chief /job:worker/task:0 at %s to initialise (it has not come)"
                  % job.jobs["worker"][0])
  began = time.monotonic()  # the processes have the same clock
  chief = job.trainer(0, step_seconds=0.1)  # so that there are steps for the worker to make
  # Two seconds at most on a quiet machine; stock looks every thirty.
  assert began < session_time(worker) < session_time(chief) + 25.0
  assert codes(chief, worker, ps) == [0, 0, 0]
  numbers = sorted(step.number for task in (chief, worker) for step in steps(task))
  # The first step of each may be applied before the other one reads the global step.
  assert numbers[0] <= 2 and 100 <= numbers[-1] < 103 and steps(worker)


@pytest.mark.slow
def test_a_worker_with_another_graph_is_refused_and_may_come_again(start):
  job = Job(start, steps=200)
  # Alone the chief takes 100 s: the worker comes again before, and makes most of the steps.
  ps, chief = job.trainer_ps(), job.trainer(0, step_seconds=0.5)
  worker = job.trainer(1, extra="surplus")
  assert worker.wait() == 1
  worker.wait_for(
    "GraphMismatchError: the graph of /job:worker/task:1 differs from that of /job:worker/task:0, "
    "the chief: variable surplus:0 (resource float32(3,) on /job:ps/task:0) is in this graph and "
    "not in the chief's")
  again = job.trainer(1)
  assert codes(again, chief, ps) == [0, 0, 0]  # who comes back has not failed


def test_a_task_that_was_told_another_cluster_is_refused(start):
  job = Job(start, steps=10**6, step_seconds=0.02)
  job.trainer_ps()
  wrong = job.jobs["worker"][0]
  job.jobs["worker"][0] = harness.addresses(1)[0]
  worker = job.trainer(1)
  assert worker.wait() == 1
  worker.wait_for(
    "ClusterMismatchError: /job:ps/task:0 at %s was started with a different cluster than "
    "/job:worker/task:1: worker 0 is %s here and %s there" % (
      job.jobs["ps"][0], job.jobs["worker"][0], wrong))


@pytest.mark.slow
def test_a_ps_that_is_not_there_is_named_within_the_limit(start):
  job = Job(start, start_timeout=4.0)  # several looks; without it 60, as long as the test waits
  for task in (job.trainer(0), job.trainer(1)):
    assert task.wait() == 1
    task.wait_for("/job:ps/task:0 at %s: refused" % job.jobs["ps"][0])


@pytest.mark.slow
@pytest.mark.parametrize(
  "with_directory", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_chief_that_was_killed_while_it_initialised(start, tmp_path, with_directory):
  directory = str(tmp_path) if with_directory else None
  job = Job(start, steps=20, step_seconds=0.02, checkpoint_dir=directory)
  ps, worker = job.trainer_ps(), job.trainer(1, initial=5.0)
  first = job.trainer(0, block_in_init=True, initial=1.0)
  first.wait_for("initialising")
  worker.wait_for("waiting for the chief")
  first.kill()
  second = job.trainer(0, initial=5.0)
  assert codes(second, worker, ps) == [0, 0, 0]
  second.wait_for("initialising")
  # All variables had values, and none of them is used. Between two reads of a step of one worker
  # there may be a step of the other.
  seen = sorted(steps(second) + steps(worker))
  assert seen[0].number <= 2 and all(abs(step.even - step.number - 5) <= 3 and step.even > 5
                                     for step in seen)


@pytest.mark.slow
def test_jobs_that_follow_each_other_on_standing_ps(start, tmp_path):
  job = Job(start, num_workers=1)
  ps = job.trainer_ps(persistent=True)

  def begin(name, **options):
    return job.trainer(checkpoint_dir=str(tmp_path / name), **options)

  first = begin("first", steps=5)
  assert first.wait() == 0 and steps(first)[0][:3] == (1, 1, 1)
  second = begin("second", initial=10.0, step_seconds=0.02, save_steps=20)
  wait_for_step(second, 25)
  second.kill()
  saved = checkpoints.global_step_of_checkpoint(
    checkpoints.latest_checkpoint(str(tmp_path / "second"))
  )
  assert saved >= 20
  # What a job left that has not ended is as little another job's as what one left that has.
  third = begin("third", initial=20.0, steps=5)
  assert third.wait() == 0 and steps(third)[0][:3] == (1, 21, 21)
  # And the second goes on from its checkpoint, not from the third's state.
  again = begin("second", initial=10.0, steps=saved + 5)
  assert again.wait() == 0 and steps(again)[0][:3] == (saved + 1, saved + 11, saved + 11)
  without = job.trainer(initial=30.0, steps=5)
  assert without.wait() == 0 and steps(without)[0][:3] == (1, 31, 31)
  ps.signal(signal.SIGTERM)
  assert ps.wait() == 0
  ps.wait_for("joined: ended by signal 15")


@pytest.mark.slow
@pytest.mark.parametrize(
  "with_directory", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_chief_that_comes_back_finds_the_live_state(start, tmp_path, with_directory):
  directory = str(tmp_path) if with_directory else None
  job = Job(start, steps=300, checkpoint_dir=directory)
  ps, first = job.trainer_ps(), job.trainer(0, step_seconds=0.02)
  worker = job.trainer(1, step_seconds=0.08)  # slow, so that the second chief finds it at work
  wait_for_step(worker, 60)
  first.kill()
  at_kill = steps(worker)[-1].number
  second = job.trainer(0)
  second.wait_for("the servers keep this run's live state")
  assert codes(second, worker, ps) == [0, 0, 0]
  numbers = [step.number for step in steps(worker)]
  assert numbers == sorted(set(numbers)), "the global step went back"
  assert steps(second)[0].number > at_kill  # its only checkpoint was that of step 0
  assert "initialising" not in second.output and "recovered" not in worker.output
  last = max(steps(second) + steps(worker))
  # A kill may cut a step in two: what was added to one of the variables already is not lost.
  assert 300 <= last.number < 303 and abs(last.even - last.number) <= 2  # stock's StopAtStepHook
  if with_directory:
    assert (
      checkpoints.global_step_of_checkpoint(checkpoints.latest_checkpoint(directory)) == last.number
    )


@pytest.mark.slow
def test_a_ps_that_comes_back_is_filled_from_the_last_checkpoint(start, tmp_path):
  job = Job(start, num_ps=2, steps=200, step_seconds=0.02, checkpoint_dir=str(tmp_path),
            save_steps=20)
  ps = [job.trainer_ps(0), job.trainer_ps(1)]
  workers = [job.trainer(0), job.trainer(1)]
  before = 0
  for session, index in ((2, 1), (3, 0)):  # ps 0 keeps the heartbeats and the run
    wait_for_step(workers[0], before + 30)
    ps[index].kill()
    ps[index] = job.trainer_ps(index)
    for worker in workers:
      worker.wait_for("recovered: session %d of this task" % session)
    (restored,) = find(workers[0], r"restored .*/model.ckpt-(\d+)")
    (lost,) = find(workers[0], r"the servers have lost state: the steps after .*"
                               r"/model.ckpt-(\d+) are lost")
    assert restored == lost >= before + 20
    before = restored
  assert codes(*workers, *ps) == [0, 0, 0, 0]
  for worker in workers:
    # Both ps were filled from one checkpoint, which the other worker's step may have cut in two.
    assert all(abs(step.even - step.number) <= 3 and abs(step.odd - step.number) <= 3
               for step in steps(worker)), worker.output
  assert 200 <= max(steps(workers[0]) + steps(workers[1])).number < 203


@pytest.mark.slow
def test_a_damaged_checkpoint_met_in_a_recovery_is_no_clean_end(start, tmp_path):
  job = Job(start, num_workers=1, step_seconds=0.02, checkpoint_dir=str(tmp_path))
  ps, chief = job.trainer_ps(), job.trainer()
  wait_for_step(chief, 5)
  for path in tmp_path.glob("model.ckpt-0.data-*"):
    path.write_bytes(b"")
  ps.kill()
  ps = job.trainer_ps()
  assert chief.wait() == 1
  chief.wait_for("CheckpointError: no checkpoint in %s can be used: " % tmp_path)
  chief.wait_for("checkpoint %s is damaged in " % (tmp_path / "model.ckpt-0"))
  assert "left at" not in chief.output
  ps.kill()


@pytest.mark.slow
def test_a_ps_that_stands_still(start):
  job = Job(start, step_seconds=0.01, heartbeat_timeout=5.0)
  ps, chief = job.trainer_ps(), job.trainer(0)
  # As users start it: here the interpreter's own end must not hang either.
  process = subprocess.Popen(
    [sys.executable, "-c", "from tests.training import legacy_trainer as t; "
     "t.train(%r, 1, t.Options(*%r))" % (job.jobs, tuple(
       legacy_trainer.Options(step_seconds=0.01, heartbeat_timeout=5.0)))],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
  try:
    for line in process.stdout:
      if line.startswith("step"):
        break
    before = wait_for_step(chief, 20)
    ps.signal(signal.SIGSTOP)
    wait_seconds(1.0)  # a fifth of the limit, which is also to be reached below
    ps.signal(signal.SIGCONT)
    wait_for_step(chief, before + 50)  # a pause that is shorter than the limit costs nothing
    numbers = [step.number for step in steps(chief)]
    assert numbers == sorted(set(numbers)) and "recovered" not in chief.output
    ps.signal(signal.SIGSTOP)
    assert chief.wait() == 1
    output, _ = process.communicate(timeout=2 * harness.LIMIT)
    assert process.returncode == 1, output[-3000:]
    for text in (chief.output, output):
      assert "TaskLostError: lost /job:ps/task:0 at %s: silent" % job.jobs["ps"][0] in text
      # Without the flag it would be thirty.
      assert max(map(int, re.findall(r"silent for (\d+) s", text))) < 25, text
  finally:
    process.kill()
    process.communicate()
  ps.kill()


@pytest.mark.slow
@pytest.mark.parametrize("there, text", [
  (True, ", although the save succeeded: a ps writes its part of a "
   "checkpoint on its own disk"),
  (False, "No such file or directory. A ps writes its part of a checkpoint on its own disk")])
def test_a_directory_that_the_ps_does_not_share(start, tmp_path, there, text):
  # A path that is not absolute is another directory for each task here, as on two machines.
  (tmp_path / "chief").mkdir()
  (tmp_path / "ps" / ("checkpoints" if there else "")).mkdir(parents=True)
  job = Job(start, num_workers=1, steps=5, checkpoint_dir="checkpoints")
  start("ps", job_lib.in_directory, str(tmp_path / "ps"), legacy_trainer.serve, job.jobs, 0,
        legacy_trainer.Options(), {})
  chief = start("chief", job_lib.in_directory, str(tmp_path / "chief"), legacy_trainer.train,
                job.jobs, 0, legacy_trainer.Options(steps=5, checkpoint_dir="checkpoints"))
  assert chief.wait() == 1
  chief.wait_for(text)
  assert steps(chief) == []
