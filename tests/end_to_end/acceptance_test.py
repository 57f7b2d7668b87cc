"""What a job promises, on tasks started by hand: it starts, or says why not; survives; ends."""
from __future__ import annotations

import re
import signal
import socket

import pytest

from tests import harness
from tests.training import job as job_lib
from tf1ps import state
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task

ENDLESS = ["--steps=1000000", "--step_seconds=0.01", "--batch_size=20"]


def steps_seen(task):
  """The global steps that a chief has printed, in order."""
  return [int(step) for step in re.findall(r"progress: step (\d+)", task.output)]


def shown(task, found, limit=harness.LIMIT):
  """Waits until found() is true; a failure shows what the task has printed."""
  try:
    return harness.wait_until(found, limit)
  except AssertionError:
    raise AssertionError(
      "%s within %g s only said:\n%s" % (task.name, limit, task.output)) from None


def heard(task, text, since=0, limit=harness.LIMIT):
  """Waits for a line with this text behind the first `since` ones."""
  return shown(
    task, lambda: next((line for line in task.lines[since:] if text in line), None), limit)


# It starts, or says who is missing.


@pytest.mark.slow
@pytest.mark.parametrize("case, seen", [
  ("refused", "refused"), ("silent", "silent"), ("unknown", "no such host"),
  ("another", "another task answers there: /job:ps/task:1")])
def test_a_worker_without_its_ps_names_it(start, case, seen):
  job = job_lib.Job(start, num_ps=2, num_workers=1, flags=["--steps=10"])
  listener = socket.socket()
  if case == "silent":
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    job.jobs["ps"][0] = "127.0.0.1:%d" % listener.getsockname()[1]
  elif case == "unknown":
    job.jobs["ps"][0] = "no-such-host.invalid:2222"
  elif case == "another":
    job.jobs["ps"].reverse()
    job.ps(1).wait_for("serving")
    job.jobs["ps"].reverse()
  with listener:
    # An answer takes seconds on a busy machine. The default is sixty seconds, as of this wait.
    worker = job.worker(0, "--start_timeout=%d" % (1 if case == "silent" else 4))
    assert worker.wait() == 1
  last = worker.last_line
  assert "/job:ps/task:0 at %s: " % job.jobs["ps"][0] in last and seen in last, worker.output


@pytest.mark.slow
def test_a_worker_is_ready_soon_after_a_late_chief(start):
  job = job_lib.Job(start, flags=ENDLESS)
  job.ps().wait_for("serving")
  worker = job.worker(1)
  worker.wait_for("waiting for the chief")
  chief = job.worker(0)
  chief.wait_for("saved")
  worker.wait_for("joined run", 25.0)  # two seconds on a quiet machine; stock looks every thirty


def test_a_worker_with_one_more_variable_is_refused_and_named(start):
  job = job_lib.Job(start, flags=ENDLESS)
  job.ps()
  job.worker(0).wait_for("progress")
  worker = job.worker(1, "--extra_variable")
  assert worker.wait() == 1
  assert "variable extra:0 (resource float32(3,)" in worker.last_line.replace(" (3,)", "(3,)")
  assert "is in this graph and not in the chief's" in worker.last_line


@pytest.mark.slow
def test_a_ps_of_another_cluster_is_told_apart(start):
  job = job_lib.Job(start, flags=ENDLESS)
  there = job.jobs["worker"][1]
  job.jobs["worker"][1] = harness.addresses(1)[0]
  job.ps().wait_for("serving")
  elsewhere, job.jobs["worker"][1] = job.jobs["worker"][1], there
  chief = job.worker(0)
  assert chief.wait() == 1
  assert "worker 1 is %s here and %s there" % (there, elsewhere) in chief.last_line


# It survives.


def test_a_chief_that_is_killed_and_comes_back_finds_the_state(start, tmp_path):
  job = job_lib.Job(start, flags=ENDLESS + ["--checkpoint_dir=%s" % tmp_path])
  job.ps()
  chief, worker = job.worker(0), job.worker(1)
  before = shown(chief, lambda: steps_seen(chief)[1:])[-1]
  chief.kill()
  again = job.worker(0)
  again.wait_for("live state")
  after = shown(again, lambda: steps_seen(again))[0]
  assert after > before
  assert "restored" not in again.output and worker.is_running
  assert "recovered" not in worker.output


@pytest.mark.slow
def test_a_ps_that_comes_back_costs_what_came_after_the_checkpoint(start, tmp_path):
  job = job_lib.Job(start, num_ps=2, flags=ENDLESS + [
    "--checkpoint_dir=%s" % tmp_path, "--save_checkpoints=steps:50"])
  servers, (chief, worker) = job.all()
  heard(chief, "model.ckpt-1")
  saved = len(chief.lines)
  servers[1].kill()
  job.ps(1)
  heard(chief, "the servers have lost state: the steps after", saved)
  restored = int(re.search(r"ckpt-(\d+)", heard(chief, "restored", saved)).group(1))
  assert restored >= 50
  heard(chief, "recovered", saved)
  heard(worker, "recovered")
  heard(chief, "progress: step", saved)
  assert steps_seen(chief)[-1] >= restored


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_workers_end_when_their_ps_stays_away(start, how):
  # A worker that has joined may have no session yet: then this limit ends it.
  job = job_lib.Job(
    start, num_ps=2, flags=[*ENDLESS, "--start_timeout=15"], heartbeat_timeout=3.0)
  servers, workers = job.all()
  for worker in workers:
    worker.wait_for("progress" if worker is workers[0] else "joined run")
  servers[1].signal(how)
  for worker in workers:
    assert worker.wait() == 1
    assert "/job:ps/task:1 at " + job.jobs["ps"][1] in worker.last_line, worker.output
    # What it says of its wait; with the default limits that would be thirty seconds and more.
    waited, = re.findall(r"(?:after|silent for) (\d+) s", worker.last_line)
    assert int(waited) < 25, worker.last_line
  assert servers[0].wait() == 1
  assert "no worker is left" in servers[0].last_line


@pytest.mark.slow
def test_a_pause_of_a_ps_is_survived(start):
  job = job_lib.Job(start, flags=ENDLESS)
  patient = "--heartbeat_timeout=60"
  paused = job.ps(0, patient)
  chief, worker = job.worker(0, patient), job.worker(1, patient)
  before = shown(chief, lambda: steps_seen(chief))[-1]
  paused.signal(signal.SIGSTOP)
  ps = Task("ps", 0, job.jobs["ps"][0])
  assert probe.probe_task(ps, timeout=4.0).state == probe.SILENT  # which takes these four seconds
  paused.signal(signal.SIGCONT)
  count = len(steps_seen(chief))
  after = shown(chief, lambda: steps_seen(chief)[count + 1:])[-1]
  assert after > before
  assert "recovered" not in chief.output + worker.output


@pytest.mark.slow
def test_a_second_job_on_a_standing_ps_begins_anew(start, tmp_path):
  job = job_lib.Job(start, num_workers=1, flags=["--batch_size=20"])
  ps = job.ps(0, "--persistent")
  for number, steps in ((1, 40), (2, 10)):
    chief = job.worker(0, "--steps=%d" % steps, "--checkpoint_dir=%s" % (tmp_path / str(number)))
    assert chief.wait() == 0, chief.output
    assert "model.ckpt-0 " in chief.output
    assert "at step %d " % steps in chief.output
  ps.signal(signal.SIGTERM)
  assert ps.wait() == 0


@pytest.mark.slow
def test_an_initialisation_left_half_done_is_not_taken_for_a_state(start, tmp_path):
  job = job_lib.Job(start, num_workers=1, flags=["--steps=30", "--batch_size=20",
                                                 "--checkpoint_dir=%s" % tmp_path])
  ps = job.ps(0, "--persistent")
  chief = job.worker(0, "--hang_in_initialiser")
  chief.wait_for("initialising for ever")
  chief.kill()
  again = job.worker(0)
  assert again.wait() == 0, again.output
  assert "live state" not in again.output and "model.ckpt-0 " in again.output
  assert ps.is_running


# It ends.


def test_a_lost_worker_is_named_and_the_job_fails(start, tmp_path):
  directory = str(tmp_path / "model")
  job = job_lib.Job(start, flags=["--batch_size=20", "--steps=400",
                                  "--checkpoint_dir=%s" % directory], heartbeat_timeout=3.0)
  ps, go_on = job.ps(), tmp_path / "go on"  # the chief's fifth step ends when the worker is dead
  chief = job.worker(0, "--block_at=5", "--block_until=%s" % go_on)
  worker = job.worker(1, "--step_seconds=0.01")
  worker.wait_for("joined run")
  worker.kill()
  go_on.write_text("")
  assert chief.wait() == 1
  assert "/job:worker/task:1 is lost" in chief.last_line
  assert "test error" in chief.output
  assert ps.wait() == 1
  assert "the chief released this task: the job has failed" in ps.last_line
  assert state.RunFile(directory).read().state == state.RUN_FAILED


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [
  (signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)])
def test_a_signal_ends_a_blocked_chief_and_its_state_is_saved(start, tmp_path, number, code):
  job = job_lib.Job(start, flags=["--steps=1000000", "--batch_size=20", "--block_at=30",
                                  "--slow_index=0", "--checkpoint_dir=%s" % tmp_path])
  job.ps()
  chief, worker = job.worker(0), job.worker(1)
  worker.wait_for("joined run")
  chief.wait_for("holds step 30")
  chief.signal(number)
  assert chief.wait() == code
  assert "by force" not in chief.output
  saved = [int(step) for step in re.findall(r"saved .*ckpt-(\d+)", chief.output)]
  assert saved[-1] >= 29, chief.output
  worker.signal(number)
  assert worker.wait() == code


@pytest.mark.slow
def test_nan_stops_the_job(start, tmp_path):
  gate = tmp_path / "gate"
  job = job_lib.Job(start, flags=["--steps=100000", "--nan_at=20", "--block_at=10",
                                  "--block_until=%s" % gate])
  servers, workers = job.all()
  for worker in workers:  # one that comes after the job's end would wait for the ps
    worker.wait_for("holds step 10")
  gate.write_text("")
  assert [worker.wait() for worker in workers] == [1, 1]
  assert "NanLossError: the loss is NaN at global step" in workers[0].last_line, workers[0].output
  assert servers[0].wait() == 1
