"""Jobs of one process that notes steps; no TensorFlow."""
from __future__ import annotations

import threading
import time

import pytest

from tests.launch import sample_tasks
from tf1ps.launch import LocalTask, Trial, Trials, mean_loss
from tf1ps.launch import trials as trials_lib
from tf1ps.training import NotedRun, read_step_log


@pytest.fixture
def trials():
  with Trials(()) as made:
    yield made


def job(folder, name, *args, run_steps=1):
  path = str(folder / name)
  return lambda: Trial(
    name, [LocalTask("worker 0", sample_tasks.make_steps, (path, *args))], [path], run_steps)


def soon(seconds=60.0):
  return time.monotonic() + seconds


def test_jobs_take_turns_and_stand_between(trials, tmp_path):
  trials.start([job(tmp_path, "fast", 0.01), job(tmp_path, "slow", 0.05)], soon())
  assert trials.measure(["fast", "slow"], 3, 0.4, soon()) == 3
  assert {name: len(rates) for name, rates in trials.rates.items()} == {"fast": 3, "slow": 3}
  assert 0 < min(trials.rates["fast"]) <= 105 and 0 < min(trials.rates["slow"]) <= 21
  assert not trials.lost
  gaps = [after.at - before.at for before, after in zip(
    read_step_log(str(tmp_path / "fast")), read_step_log(str(tmp_path / "fast"))[1:])]
  assert max(gaps) > 0.4  # while the other one had its turn


def test_one_that_fails_is_lost_and_the_others_go_on(trials, tmp_path):
  trials.start([job(tmp_path, "good", 0.01), job(tmp_path, "bad", 0.001, 1, 2)], soon())
  assert trials.lost == {"bad": "worker 0 ended with 3: no more steps"}
  trials.measure(["good", "bad"], 1, 0.1, soon())
  assert [len(trials.rates[name]) for name in ("good", "bad")] == [1, 0]


def test_one_that_is_not_ready_in_time(trials, tmp_path):
  makers = [job(tmp_path, name, 100.0) for name in "abc"] + [job(tmp_path, "d", 0.01)]
  trials.start(makers, soon(3.0))
  assert trials.lost == dict(dict.fromkeys("abc", "it was not ready in time"),
                             d="no time was left to start it")
  assert trials.late == ["a", "b", "c", "d"] and trials.start_seconds == 0.0


class Clock:
  """Stands in for the module `time`: the time is over once a job is ready."""

  def __init__(self, trials):
    self._trials, self._ahead = trials, 0.0

  def monotonic(self):
    return time.monotonic() + self._ahead

  def sleep(self, seconds):
    threading.Event().wait(seconds)
    self._ahead = 1000.0 if self._trials.start_seconds else 0.0


def test_a_run_of_several_steps_is_waited_for(trials, tmp_path, monkeypatch):
  began = time.monotonic()
  with monkeypatch.context() as patch:
    patch.setattr(trials_lib, "time", Clock(trials))
    trials.start([job(tmp_path, "few", 0.001, 2, run_steps=4),
                  job(tmp_path, "enough", 0.001, 4, run_steps=4)], soon())
  assert trials.lost == {"few": "it was not ready in time"}
  assert 0.0 < trials.start_seconds <= time.monotonic() - began and trials.late == ["few"]
  assert trials.measure(["enough"], 2, 0.1, soon()) == 2


def test_no_round_begins_too_late(trials, tmp_path):
  trials.start([job(tmp_path, "one", 0.001)], soon())
  assert trials.measure(["one"], 1000, 0.1, soon(2.0)) < 10
  trials.forget(["one"])


def test_losses_of_the_second_half_of_the_examples():
  runs = [NotedRun(0.0, step, 10 * step, float(step)) for step in range(1, 11)]
  assert mean_loss(runs, 60) == 4.5  # 30 to 60
  assert mean_loss([], 60) != mean_loss([], 60)  # not a number


def test_a_log_that_is_being_written(tmp_path):
  path = tmp_path / "log"
  assert read_step_log(str(path)) == []
  path.write_bytes(b"1234567")
  assert read_step_log(str(path)) == []
