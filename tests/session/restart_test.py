"""A scheduler starts a task again whose part is done: it ends with 0."""
from __future__ import annotations

import dataclasses

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import cluster_tasks, harness
from tests.training import local_server
from tests.training.job import Job, codes, steps
from tf1ps.cluster import Cluster, Task, probe
from tf1ps.compat import last_step_of
from tf1ps.session import presence, process_end, run_directory
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile
from tf1ps.training import Options, joining


@pytest.mark.slow
def test_a_worker_that_has_done_its_part_keeps_its_examples(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, flags=["--examples=800", "--checkpoint_dir=%s" % tmp_path])
  ps, chief = job.ps(), job.worker(0, "--block_at=5", "--block_until=%s" % gate)
  chief.wait_for("holds step 5")
  assert job.worker(1).wait() == 0
  again = job.worker(1)
  assert again.wait() == 0
  assert again.last_line == (
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
  assert "the run in %s has ended with --steps=5, exit code 0" % tmp_path in task.last_line


@pytest.mark.slow
def test_a_drop_in_whose_job_ends_while_it_waits_for_the_ps_leaves(start, tmp_path):
  RunFile(str(tmp_path)).write("r", RUN_RUNNING, 5)
  task = Job(start, steps=5, checkpoint_dir=str(tmp_path)).trainer(1)
  task.wait_for("for /job:ps/task:0 at ")
  RunFile(str(tmp_path)).write("r", RUN_ENDED, 5)
  assert task.wait() == 0
  assert "the run in %s has ended with step 5: leaving" % tmp_path in task.output


@pytest.mark.slow
def test_a_drop_in_that_has_done_its_part_leaves(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, steps=400)  # the chief waits after fifty of its own; the other makes the rest
  ps, chief, first = job.trainer_ps(), job.trainer(0, go_on=str(gate)), job.trainer(1)
  assert first.wait() == 0
  again = job.trainer(1)
  assert again.wait() == 0
  assert not steps(again) and "left at" not in again.output
  again.wait_for("/job:worker/task:1 has done its part of the run before this start: leaving")
  gate.write_text("")
  assert codes(chief, ps) == [0, 0]


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("state, goal, steps_now, expected", [
  (RUN_ENDED, "--steps=5", 5, True),
  (RUN_ENDED, "--steps=5", 6, False),  # more is asked for
  (RUN_ENDED, "", None, False),  # nobody knows when the job ends
  (RUN_FAILED, "--steps=5", 5, False)])
def test_whether_the_job_had_ended_before(tmp_path, set_timing, state, goal, steps_now, expected):
  set_timing(run_directory, ended_run_wait=0.1)
  RunFile(str(tmp_path)).write("r", state, 5, goal=goal)
  of = Cluster({"ps": {0: harness.addresses(1)[0]}, "worker": {0: "127.0.0.1:1"}}, "worker", 0)
  assert isinstance(of.ps[0], Task)  # which nobody serves
  options = Options(steps=steps_now, checkpoint_dir=str(tmp_path))
  assert says_over(lambda: joining.check_not_over(of, options)) == (
    "the run in %s has ended with --steps=5" % tmp_path if expected else "")


def says_over(check):
  try:
    check()
  except run_directory.PartDoneError as error:
    return str(error)
  return ""


def test_without_ps_a_worker_needs_the_chief_and_the_chief_another_worker(
    start, tmp_path, set_timing):
  jobs = {"worker": harness.addresses(3)}
  start("worker 2", cluster_tasks.serve, jobs, "worker", 2).wait_for("up")
  RunFile(str(tmp_path)).write("r", RUN_ENDED, 5, goal="--steps=5")

  def is_over(index):
    # The chief finds worker 2, on a busy machine too; nobody is there for worker 1.
    set_timing(run_directory, ended_run_wait=0.1 if index else harness.LIMIT)
    return bool(says_over(lambda: run_directory.check_not_over(
      str(tmp_path), Cluster({"worker": dict(enumerate(jobs["worker"]))}, "worker", index),
      "--steps=5")))

  assert [is_over(index) for index in (0, 1)] == [False, True]


def test_a_task_that_is_there_is_seen_where_no_time_is_left(tmp_path, set_timing, monkeypatch):
  set_timing(run_directory, ended_run_wait=0.0)
  monkeypatch.setattr(
    run_directory, "probe_tasks", lambda tasks: probe.probe_tasks(tasks, harness.LIMIT))
  RunFile(str(tmp_path)).write("r", RUN_ENDED, 5, goal="--steps=5")
  of = dataclasses.replace(local_server.record("seen").cluster, task_index=1)
  assert not says_over(lambda: run_directory.check_not_over(str(tmp_path), of, "--steps=5"))


@pytest.mark.parametrize("state, last_step, expected", [
  (RUN_ENDED, 5, True), (RUN_ENDED, 6, False), (RUN_ENDED, None, False), (RUN_FAILED, 5, False)])
def test_a_drop_in_that_is_started_after_the_end_leaves(
    tmp_path, set_timing, monkeypatch, state, last_step, expected):
  set_timing(run_directory, ended_run_wait=0.1)
  monkeypatch.setattr(presence, "_present", {})
  RunFile(str(tmp_path)).write("r", state, 5)
  hooks = [tf.train.StopAtStepHook(**(
    {"num_steps": 5} if last_step is None else {"last_step": last_step}))]
  of = local_server.record("started-again").cluster
  assert says_over(lambda: run_directory.check_not_over(
    str(tmp_path), of, last_step=last_step_of(hooks))) == (
      "the run in %s has ended with step 5" % tmp_path if expected else "")
  if expected:
    target = local_server.server().target
    present = presence.be_present(local_server.record("started-again"))  # as with tf1ps.v1
    with tf.Graph().as_default(), pytest.raises(SystemExit) as left:
      tf1ps.MonitoredTrainingSession(target, checkpoint_dir=str(tmp_path), hooks=hooks)
    assert left.value.code == 0
    assert present not in process_end._open  # its end waits for no ps to report to
