from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from benchmarks import counters, jobs, links, systems


def job_of(tmp_path, monkeypatch, *lines):
  """A job of one process that is this Python program, and counts in the file COUNTER."""
  program = "\n".join(("import sys, time", "from benchmarks import counters",
                       "counter = counters.Counter(sys.argv[1])") + lines)

  def tasks_of(system, run):
    counter = os.path.join(run.folder, "steps")
    return [systems.Task("worker", 0, [system.python, "-c", program, counter], counter)], {}

  monkeypatch.setattr(systems, "tasks_of", tasks_of)
  return jobs.Job(systems.System("one", "local"),
                  systems.Run("S", str(tmp_path), links.LOOPBACK))


def test_a_window_is_what_happened_between_two_samples():
  first = jobs.Sample(100, 10.0, {"worker": 1.0, "ps": 2.0}, 5000, 10.5)
  last = jobs.Sample(300, 14.0, {"worker": 3.0, "ps": 3.0}, 25000, 14.5)
  window = jobs.between(first, last)
  assert window == (50.0, {"worker": 10.0, "ps": 5.0}, 100.0)
  with pytest.raises(jobs.JobError, match=r"no step in 4.0 s"):
    jobs.between(first, last._replace(steps=100))


def test_a_count_is_read_from_outside(tmp_path):
  path = str(tmp_path / "steps")
  assert counters.read(path)[0] == 0
  counter = counters.Counter(path)
  counter.add()
  before = time.monotonic()
  counter.add(8)
  steps, at = counters.read(path)
  assert steps == 9 and before <= at <= time.monotonic()
  counters.Counter("").add()  # for nobody


def test_a_system_that_was_killed_is_said_to_be(tmp_path, monkeypatch):
  job = job_of(tmp_path, monkeypatch, "while True: counter.add(); time.sleep(0.001)")
  try:
    job.wait_for_steps(5)
    job.signal(signal.SIGKILL)
    with pytest.raises(jobs.JobError, match=r"one: worker 0 ended with -9, killed: .* memory"):
      job.wait_for_steps(10 ** 9, limit=60.0)
  finally:
    job.end()


def test_a_process_that_ended_is_told_with_the_last_line_that_it_said(tmp_path, monkeypatch):
  job = job_of(tmp_path, monkeypatch, "print('much'); sys.exit('ping timeout')")
  try:
    with pytest.raises(jobs.JobError, match=r"^one: worker 0 ended with 1: ping timeout\n---"):
      job.wait_for_steps(1, limit=60.0)
    for read in (job.sample, job.peak_mb):
      with pytest.raises(jobs.JobError, match="ended with 1"):
        read()
  finally:
    job.end()


def test_a_stopped_job_makes_no_step_until_it_goes_on(tmp_path, monkeypatch):
  job = job_of(tmp_path, monkeypatch, "while True: counter.add(); time.sleep(0.001)")
  try:
    job.wait_for_steps(5)
    job.stop()
    first, pause = job.steps()[0], threading.Event()
    while job.steps()[0] != first:  # the signal is on its way
      first = job.steps()[0]
      pause.wait(0.05)
    pause.wait(0.1)
    assert job.steps()[0] == first and job.stood > 0.1
    job.go_on()
    assert job.stood == 0
    job.wait_for_steps(first + 5)
    sample = job.sample()
    assert sample.steps > first and sample.cpu["ps"] == 0 and sample.bytes >= 0
    assert job.peak_mb() > 1
  finally:
    job.end()
  with pytest.raises(jobs.JobError, match="worker 0 ended with -%d" % signal.SIGKILL):
    job.check()


def test_a_loss_is_read_from_what_it_prints(tmp_path, monkeypatch):
  for said, loss in (("loss 0.125", 0.125),
                     ("test micro_loss 250000.5000, test loss 0.2 at step 3", 0.2500005)):
    job = job_of(tmp_path, monkeypatch, "print(%r)" % said)
    try:
      assert job.loss(60) == pytest.approx(loss, abs=1e-12)
    finally:
      job.end()


@pytest.mark.parametrize("said, kind", [
  ("tf1ps-worker: there is no flag --steps_in_sight (see tf1ps-worker --help)", jobs.NotThereYet),
  ("tf1ps-worker: --steps_in_sight is not a flag (see tf1ps-worker --help)", jobs.NotThereYet),
  ("flag --optimizer=lazy: value should be one of <sgd|adam>", jobs.NotThereYet),
  ("ValueError: no", jobs.JobError)])
def test_a_flag_that_is_not_known_is_no_failure(tmp_path, monkeypatch, said, kind):
  job = job_of(tmp_path, monkeypatch, "sys.exit(%r)" % said)
  job.system = job.system._replace(peer="tf1ps")
  try:
    with pytest.raises(jobs.JobError) as caught:
      job.loss(60)
    assert caught.type is kind
  finally:
    job.end()
