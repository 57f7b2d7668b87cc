"""A scheduler starts a task again whose part is done: it ends with 0."""
from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.training import local_server
from tests.training.job import Job, codes, steps
from tf1ps.cluster import Cluster, Task
from tf1ps.session import monitored_session
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile
from tf1ps.training import Options, worker


@pytest.mark.slow
def test_a_worker_that_has_done_its_part_keeps_its_examples(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, flags=["--examples=800", "--checkpoint_dir=%s" % tmp_path])
  ps, chief = job.ps(), job.worker(0, "--block_at=5", "--block_until=%s" % gate)
  chief.wait_for("holds step 5")
  assert job.worker(1).wait() == 0
  again = job.worker(1)
  assert again.wait() == 0
  assert again.lines[-1] == (
    "worker 1: 0 steps, 0 examples, 0.0 s, /job:worker/task:1 has done its part of the run before "
    "this start, exit code 0")
  gate.write_text("")
  assert codes(chief, ps) == [0, 0]
  assert "worker 0: 416, worker 1: 416" in chief.output
  assert RunFile(str(tmp_path)).read().goal == "--examples=800"


@pytest.mark.slow
def test_a_worker_whose_job_ends_while_it_waits_for_the_ps_leaves(start, tmp_path):
  RunFile(str(tmp_path)).write("r", RUN_RUNNING, 5)
  task = Job(start, flags=["--steps=5", "--checkpoint_dir=%s" % tmp_path]).worker(1)
  task.wait_for("for /job:ps/task:0 at ")
  RunFile(str(tmp_path)).write("r", RUN_ENDED, 5, goal="--steps=5")
  assert task.wait() == 0
  assert "the run has ended with --steps=5, exit code 0" in task.lines[-1]


@pytest.mark.slow
def test_a_drop_in_that_has_done_its_part_leaves(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, steps=100)
  ps, chief, first = job.trainer_ps(), job.trainer(0, go_on=str(gate)), job.trainer(1)
  assert first.wait() == 0
  again = job.trainer(1)
  assert again.wait() == 0
  assert not steps(again) and "left at" not in again.output
  again.wait_for("/job:worker/task:1 has done its part of the run before this start: leaving")
  gate.write_text("")
  assert codes(chief, ps) == [0, 0]


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("state, goal, steps_now, is_over", [
  (RUN_ENDED, "--steps=5", 5, True),
  (RUN_ENDED, "--steps=5", 6, False),  # more is asked for
  (RUN_ENDED, "", None, False),  # nobody knows when the job ends
  (RUN_FAILED, "--steps=5", 5, False)])
def test_whether_the_job_had_ended_before(tmp_path, set_timing, state, goal, steps_now, is_over):
  set_timing(monitored_session, ended_run_wait=0.1)
  RunFile(str(tmp_path)).write("r", state, 5, goal=goal)
  server = types.SimpleNamespace(cluster=Cluster(
    {"ps": {0: harness.addresses(1)[0]}, "worker": {0: "127.0.0.1:1"}}, "worker", 0))
  assert isinstance(server.cluster.ps[0], Task)  # which nobody serves
  options = Options(steps=steps_now, checkpoint_dir=str(tmp_path))
  assert worker._is_over(server, options) == is_over


@pytest.mark.parametrize("state, last_step, is_over", [
  (RUN_ENDED, 5, True), (RUN_ENDED, 6, False), (RUN_ENDED, None, False), (RUN_FAILED, 5, False)])
def test_a_drop_in_that_is_started_after_the_end_leaves(
    tmp_path, set_timing, state, last_step, is_over):
  set_timing(monitored_session, ended_run_wait=0.1)
  RunFile(str(tmp_path)).write("r", state, 5)
  hooks = [tf.train.StopAtStepHook(**(
    {"num_steps": 5} if last_step is None else {"last_step": last_step}))]
  membership = types.SimpleNamespace(cluster=local_server.record("started-again").cluster)
  assert monitored_session._is_over(membership, str(tmp_path), hooks) == is_over
  if is_over:
    with tf.Graph().as_default(), pytest.raises(SystemExit) as left:
      tf1ps.MonitoredTrainingSession(
        local_server.server().target, checkpoint_dir=str(tmp_path), hooks=hooks)
    assert left.value.code == 0
