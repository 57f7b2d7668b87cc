"""Jobs of tf1ps-ps and tf1ps-worker: when they stop, what they count, how they fail."""
from __future__ import annotations

import os
import re
import shutil
import signal

import pytest

from tests import clock_tasks, harness
from tests.training import local_job
from tests.training.job import Job, codes, find, last_line
from tests.training.traffic_report_test import LINE as SENT
from tf1ps.checkpoint import checkpoints
from tf1ps.cluster.description import Task
from tf1ps.compat import temporary_files
from tf1ps.session import membership
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile, control, heartbeat
from tf1ps.training import features
from tf1ps.training import worker as worker_lib

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples"
        r"(?:, staleness [\d.]+ \(\d+ at most\))?, [\d.]+ s, (.*), exit code (\d)")


@pytest.mark.slow
def test_three_workers_stop_together(start):
  job = Job(start, num_ps=2, num_workers=3, flags=["--steps=300", "--container=line/a"])
  ps = [job.ps(index, "--container=line/a") for index in range(2)]
  workers = [job.worker(index) for index in range(3)]
  assert codes(*workers, *ps) == [0] * 5
  (reached,) = find(workers[0], r"global step (\d+) in ")
  assert 300 <= reached < 303
  ends = [last_line(worker, LAST) for worker in workers]
  assert sum(end[0] for end in ends) == reached
  assert [end[1] for end in ends] == [32 * end[0] for end in ends]
  assert [end[2:] for end in ends] == [["reached --steps=300", 0]] * 3
  shares = find(
    workers[0], r"examples by worker: worker 0: (\d+), worker 1: (\d+), worker 2: (\d+)")
  assert shares == [end[1] for end in ends]
  assert find(workers[0], r"at step (\d+) \((\d+) examples") == [reached, 400]
  assert re.search(", " + SENT + r", [\d.]+ s, reached", workers[0].last_line), workers[0].last_line
  assert not any("sent" in worker.last_line for worker in workers[1:])
  for index, task in enumerate(ps):
    last_line(task, r"ps %d: the chief released this task: the job has ended, [\d.]+ s, exit code 0"
              % index)


@pytest.mark.slow
def test_steps_are_of_the_job_however_often_it_is_started(tmp_path):
  found = []
  for steps in (100, 100, 150):
    outcome = local_job.train(checkpoint_dir=str(tmp_path), steps=steps)
    assert outcome.reason == "reached --steps=%d" % steps
    assert outcome.examples == 32 * outcome.steps
    found.append((outcome.steps, outcome.global_step, outcome.evaluation.metrics["loss"]))
  assert [(own, step) for own, step, _ in found] == [(100, 100), (0, 100), (50, 150)]
  losses = [loss for _, _, loss in found]
  assert losses[0] == losses[1] > losses[2]


@pytest.mark.slow
def test_epochs_and_examples_are_of_the_job_however_often_it_is_started(start, tmp_path):
  found = []
  for flag in ("--epochs=2", "--epochs=2", "--examples=865"):
    job = Job(start, flags=["--checkpoint_dir=%s" % tmp_path, flag])
    (ps,), workers = job.all()
    assert codes(*workers, ps) == [0, 0, 0]
    ends = [last_line(worker, LAST) for worker in workers]
    found.append([end[1:3] for end in ends] + find(workers[0], r"global step (\d+) in "))
  went_through = "went through its data --epochs=%d times"
  nothing = ("nothing was left to do: the job had gone through its data 2 times before "
             "(--epochs=2)")
  # 200 of 400 records for each worker: seven batches per epoch, thirteen for two.
  assert found == [[[400, went_through % 2]] * 2 + [26], [[0, nothing]] * 2 + [26],
                   # 65 are left of 865: a batch of 32 for the part of 32, two for that of 33.
                   [[n, "trained on its part of --examples=865"] for n in (64, 32)] + [29]]


@pytest.mark.slow
def test_more_epochs_go_on_from_those_of_the_starts_before(tmp_path):
  found = [local_job.train(checkpoint_dir=str(tmp_path), epochs=epochs) for epochs in (2, 3)]
  assert [(one.examples, one.reason, one.global_step) for one in found] == [
    (800, "went through its data --epochs=2 times", 25),
    (400, "went through its data --epochs=3 times", 38)]


@pytest.mark.slow
def test_examples_are_counted_over_all_workers(start):
  """A worker's part, in whole batches."""
  job = Job(start, flags=["--examples=641"])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0, 0, 0]
  reason = "trained on its part of --examples=641"
  assert [last_line(worker, LAST)[:3] for worker in workers] == [[11, 352, reason],
                                                                 [10, 320, reason]]
  assert find(workers[0], r"global step (\d+) in ") == [21]


def told(job):
  """{worker: examples}, as the heartbeats on ps 0 tell."""
  ps = Task("ps", 0, job.jobs["ps"][0])
  table = control.ControlTable("grpc://" + ps.address, ps, ps, harness.LIMIT)
  try:
    members = heartbeat.members_of(table.read(), None)
    return {member.index: member.examples for member in members if member.job == "worker"}
  finally:
    table.close()


def test_a_worker_that_comes_back_counts_on(start, set_timing):
  set_timing(control, probe_limit=harness.LIMIT)
  job = Job(start, flags=["--examples=1280"])
  ps, chief, worker = job.ps(), job.worker(0), job.worker(1, "--block_at=12", "--slow_index=1")
  worker.wait_for("holds step 12")
  chief.wait_for("saved")
  (directory,) = find(chief, r"saved (.*)/model.ckpt-0 ")  # its own, so nobody else needs a graph
  assert {name.partition("-")[0] for name in os.listdir(directory)} == {"checkpoint", "model.ckpt"}
  assert not [name for name in os.listdir(directory) if name.endswith(".meta")]
  harness.wait_until(lambda: told(job).get(1) == 11 * 32)
  worker.kill()
  again = job.worker(1)
  assert codes(again, chief, ps) == [0, 0, 0]
  assert last_line(again, LAST)[:2] == [9, 640]
  assert find(chief, r"worker 0: (\d+), worker 1: (\d+)") == [640, 640]
  assert find(chief, r"global step (\d+) in ") == [20 + 11 + 9]


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_named_with_its_step_and_not_saved(start, tmp_path):
  job = Job(start, num_workers=1, flags=[
    "--steps=1000", "--nan_at=20", "--checkpoint_dir=%s" % tmp_path, "--save_checkpoints=steps:5"])
  ps, chief = job.ps(), job.worker()
  assert codes(chief, ps) == [1, 1]
  last_line(chief, r"worker 0 \(chief\): NanLossError: the loss is NaN at global step 20 \(step 20 "
            r"of this worker\): lower --learning_rate, or look at the data, exit code 1")
  last_line(ps, r"ps 0: the chief released this task: the job has failed, [\d.]+ s, exit code 1")
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-15")


@pytest.mark.slow
def test_an_evaluation_that_fails_fails_the_job_and_keeps_the_model(start):
  job = Job(start, flags=["--steps=20", "--fail_in=last_eval"])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [1, 0, 1]
  assert "ValueError: no data today" in workers[0].last_line
  (directory,) = find(workers[0], "without --checkpoint_dir, the model is in (.*) until it is eval")
  (kept,) = find(workers[0], "the trained model is kept in (.*), as the job failed")
  assert checkpoints.global_step_of_checkpoint(kept) >= 20
  shutil.rmtree(temporary_files.make_directory("model"))  # which removes what is not kept
  assert os.path.exists(kept + ".index")
  shutil.rmtree(directory)
  last_line(ps, r"ps 0: the chief released this task: the job has failed, [\d.]+ s, exit code 1")


@pytest.mark.slow
def test_what_fails_is_said_in_the_last_line_and_the_ps_leaves(start):
  job = Job(start, num_workers=2, flags=["--examples=1"], heartbeat_timeout=clock_tasks.LIMIT)
  ps, workers = job.watching_ps(), [job.worker(index) for index in (0, 1)]
  assert codes(*workers) == [1, 1]
  clock_tasks.wait_until_it_sees(ps, "/job:worker/task:0 failed", "/job:worker/task:1 failed")
  assert clock_tasks.end_of(ps) == 1
  text = "ValueError: --examples=1, but each of the 2 workers needs an example: give 2 or more"
  for worker in workers:
    assert text in worker.last_line and worker.last_line.endswith("exit code 1"), worker.output
  assert "no worker is left: " in ps.last_line
  for index in (0, 1):
    assert "/job:worker/task:%d failed: ValueError: " % index in ps.last_line


@pytest.mark.slow
def test_an_error_in_a_step_is_said_in_the_last_line(start):
  job = Job(start, num_workers=1, flags=["--steps=100", "--fail_in=step"])
  (ps,), (worker,) = job.all()
  assert codes(worker, ps) == [1, 1]
  assert "ValueError: a bad record" in worker.last_line, worker.output


@pytest.mark.parametrize("failing", ["train", "eval"])
def test_an_input_that_fails_ends_the_job_before_it_trains(failing):
  modes = []

  def input_fn(mode, shard):
    modes.append(mode)
    if mode == failing:
      raise ValueError("no data today")
    return local_job.line_input(mode, shard)

  with pytest.raises(ValueError, match="no data today"):
    local_job.train(input_fn, steps=100000000)
  assert modes == ["eval", "train"][:1 + (failing == "train")]


@pytest.mark.parametrize("number", [
  signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_during_the_final_evaluation_is_reported(start, tmp_path, number):
  job = Job(start, num_workers=1, heartbeat_timeout=clock_tasks.LIMIT, flags=[
    "--steps=20", "--evaluate_until=%s" % (tmp_path / "never"),
    "--checkpoint_dir=%s" % (tmp_path / "model")])
  ps, chief = job.watching_ps(), job.worker()
  chief.wait_for("holds its evaluation")
  chief.signal(number)
  assert chief.wait() == 128 + number
  clock_tasks.wait_until_it_sees(ps, "/job:worker/task:0 failed")
  assert clock_tasks.end_of(ps) == 1
  assert chief.last_line == "worker 0 (chief): ended by signal %d, exit code %d" % (
    number, 128 + number)
  assert "failed: ended by signal %d" % number in ps.last_line


def lose_at_the_end(start, tmp_path, *flags):
  """A ps is killed when training has ended, and the worker has left.

  Returns (the job, the chief, the worker, the new ps). The gate "leave" lets the chief go on.
  """
  job = Job(start, flags=["--batch_size=10", "--leave_until=%s" % (tmp_path / "leave"), *flags])
  (ps,), (chief, worker) = job.all()
  chief.wait_for("holds its end")
  if "--replication=in_graph" not in flags:
    assert worker.wait() == 0, worker.output
  ps.kill()
  return job, chief, worker, job.ps()


@pytest.mark.slow
@pytest.mark.parametrize("least, flags", [
  # The warm-up has the chief see step 40, however busy it is.
  (60, ["--steps=60"]),
  (60, ["--steps=60", "--save_checkpoints=steps:40", "--staleness_policy=warm_up:45"]),
  (60, ["--steps=60", "--overlap=2", "--steps_per_execution=4"]),
  (80, ["--shard=dynamic", "--epochs=2"]),
  (60, ["--steps=60", "--staleness_policy=max_lead:2"]),
  (60, ["--replication=in_graph", "--steps=60"])], ids=lambda value: " ".join(
    value if isinstance(value, list) else []))
def test_the_chief_makes_the_steps_again_that_a_ps_takes_with_it_at_the_end(
    start, tmp_path, least, flags):
  directory = tmp_path / "model"
  _, chief, worker, ps = lose_at_the_end(
    start, tmp_path, "--checkpoint_dir=%s" % directory, *flags)
  (tmp_path / "leave").write_text("")
  assert codes(chief, worker, ps) == [0] * 3, "\n".join(
    task.output for task in (chief, worker, ps))
  back, lost = find(chief, r"the job goes back to step (\d+): (\d+) steps are lost")
  assert (40 if "--save_checkpoints=steps:40" in flags else 0) <= back < least <= back + lost
  chief.wait_for("the chief makes them again, from step %d" % back)
  evaluated, = find(chief, r"at step (\d+) \(")
  steps, rolled_back = find(chief, r"(\d+) steps, .*, (\d+) steps rolled back, ")
  assert least <= evaluated < least + 8 and rolled_back == lost
  assert steps >= evaluated - back  # all in the second session, and those before
  run = RunFile(str(directory)).read()
  assert (run.state, run.global_step) == (RUN_ENDED, evaluated)
  assert run.goal  # the job has reached it: a task that is started again leaves


@pytest.mark.slow
def test_a_ps_that_dies_in_each_save_does_not_keep_the_chief_for_ever(start, tmp_path):
  gate, directory = tmp_path / "leave", tmp_path / "model"
  job, chief, worker, ps = lose_at_the_end(
    start, tmp_path, "--steps=60", "--checkpoint_dir=%s" % directory)
  gate.write_text("")
  chief.wait_for("the chief makes them again, from step")
  gate.unlink()
  chief.wait_for("holds its end", since=chief.lines.index("holds its end") + 1)
  ps.kill()
  ps = job.ps()
  gate.write_text("")
  assert codes(chief, worker, ps) == [0] * 3, chief.output
  assert chief.output.count("the chief makes them again") == 1
  assert find(chief, r"at step (\d+) \(")[0] < 60
  assert RunFile(str(directory)).read().goal == ""  # the next start makes the lost steps


@pytest.mark.slow
def test_synchronous_updates_that_are_lost_at_the_end_are_for_the_next_start(start, tmp_path):
  directory = tmp_path / "model"
  _, chief, worker, ps = lose_at_the_end(
    start, tmp_path, "--steps=60", "--sync_replicas", "--checkpoint_dir=%s" % directory)
  (tmp_path / "leave").write_text("")
  assert codes(chief, worker, ps) == [0] * 3, chief.output
  assert "makes them again" not in chief.output
  assert find(chief, r"at step (\d+) \(")[0] < 60
  assert RunFile(str(directory)).read().goal == ""


@pytest.mark.slow
def test_a_ps_that_is_stopped_at_the_end_is_released_when_it_goes_on(start, tmp_path):
  gate = tmp_path / "evaluate"
  job = Job(start, num_workers=1, heartbeat_timeout=120.0, flags=[
    "--steps=20", "--evaluate_until=%s" % gate, "--checkpoint_dir=%s" % (tmp_path / "model")])
  ps, chief = job.ps(), job.worker()
  chief.wait_for("holds its evaluation")
  ps.signal(signal.SIGSTOP)
  gate.write_text("")
  with pytest.raises(AssertionError, match="has not ended"):
    chief.wait(20.0)  # two tries take less, and where they do not, nothing is lost by it
  ps.signal(signal.SIGCONT)
  assert codes(chief, ps) == [0, 0], chief.output + ps.output


@pytest.mark.slow
def test_a_worker_that_ends_while_its_model_is_built_is_reported(start, tmp_path):
  gate = tmp_path / "gate"  # the chief comes to its end when the others have ended
  job = Job(start, num_workers=3, heartbeat_timeout=4.0, flags=["--steps=20"])
  job.ps()
  chief = job.worker(0, "--block_at=5", "--block_until=%s" % gate)
  exits = job.worker(1, "--fail_in=exit")
  ended = job.worker(2, "--build_until=%s" % (tmp_path / "never"))
  ended.wait_for("holds its model")
  ended.signal(signal.SIGTERM)
  assert codes(exits, ended) == [1, 143]
  gate.write_text("")
  assert chief.wait() == 1
  assert ended.last_line == "worker 2: ended by signal 15, exit code 143"
  assert ("/job:worker/task:1 failed: the program ended Python with 'no model today'; "
          "/job:worker/task:2 failed: ended by signal 15") in chief.last_line


def test_a_chief_announces_its_run_before_it_builds(start, tmp_path):
  job = Job(start, num_workers=1, flags=[
    "--steps=20", "--checkpoint_dir=%s" % tmp_path, "--build_until=%s" % (tmp_path / "never")])
  chief = job.worker()  # there is no ps yet
  chief.wait_for("holds its model")
  first = RunFile(str(tmp_path)).read()
  assert (first.state, first.pid) == (RUN_RUNNING, chief.pid)
  harness.wait_until(lambda: RunFile(str(tmp_path)).read() not in (None, first))
  chief.signal(signal.SIGTERM)
  assert chief.wait() == 143
  last = RunFile(str(tmp_path)).read()
  assert (last.state, last.reason) == (RUN_FAILED, "ended by signal 15")


@pytest.mark.parametrize("place", ["the evaluation", "the outcome"])
def test_an_error_at_the_end_releases_the_ps(monkeypatch, place):
  def fail(*unused_args, **unused_kwargs):
    raise ValueError("a mistake")

  def release(run, failed, reason=""):
    released.append((failed, reason))
    return releases(run, failed, reason)

  released, releases = [], membership.Membership.release
  monkeypatch.setattr(membership.Membership, "release", release)
  if place == "the outcome":
    monkeypatch.setattr(features.Loop, "say_short", fail)
  else:
    monkeypatch.setattr(worker_lib, "evaluate_checkpoint", fail)
  with pytest.raises(ValueError, match="a mistake"):
    local_job.train(steps=3)
  assert released == [(True, "")]
