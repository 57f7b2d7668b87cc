"""The states and the order of ends of tasks on a backend without processes."""
from __future__ import annotations

import os
import select
import signal

import pytest

from tf1ps.cluster import SignalQueue
from tf1ps.launch import restarts, watch
from tf1ps.launch.job import Backend, Job, TaskProcess, describe_tasks
from tf1ps.launch.output import Screen
from tf1ps.launch.watch import Watch

pytestmark = pytest.mark.any_tensorflow


class Scripted(Backend):
  """Tasks that end as their scripts have it: {name: the exit code of each start, None for none}."""

  def __init__(self, **codes):
    self.ended, self.signals, self.started = [], [], {}
    self._codes = {name.replace("_", " "): list(each) for name, each in codes.items()}
    self._due = []

  def start_task(self, task):
    read_end, write_end = os.pipe()
    os.write(write_end, b"why\n")
    os.close(write_end)
    process = self.started[task.name] = TaskProcess(task.name, os.getpid(), read_end)
    code = self._codes[task.name].pop(0)
    self._due += [] if code is None else [(process, code)]
    return process

  def take(self):
    due, self._due = self._due, []
    for process, code in due:
      process.note_end(code)
      self.ended.append(process)

  def wait(self, interrupts, limit):
    select.select([interrupts], [], [], limit)

  def signal_task(self, process, number):
    self.signals.append((process.name, signal.Signals(number).name))
    # The deaf one ends only by SIGKILL.
    if process.name != "ps 1" or number == signal.SIGKILL:
      self._due.append((process, -number))


def run(backend, tasks, **values):
  lines = []
  job = Job(tasks, "job: ", **{**dict(
    grace=0.0, end_limit=0.0, signalled_limit=60.0, others_limit=0.1, killed_limit=60.0,
    output_limit=60.0), **values})
  with SignalQueue() as interrupts:
    outcome = Watch(job, backend, interrupts, Screen(lines.append)).run()
  return outcome, [line for line in lines if line.startswith("job: ")]


def test_a_failure_ends_the_workers_and_then_the_others():
  backend = Scripted(ps_0=[None], ps_1=[None], worker_0=[None], worker_1=[3])
  outcome, lines = run(backend, describe_tasks(2, 2), end_limit=60.0)
  assert (outcome.exit_code, outcome.text) == (1, "worker 1 ended with exit code 3: why")
  assert backend.signals == [("worker 0", "SIGTERM"), ("ps 0", "SIGTERM"), ("ps 1", "SIGTERM"),
                             ("ps 1", "SIGKILL")]
  assert lines[1:] == ["job: worker 1 ended with exit code 3: ending the others",
                       "job: ps 1 did not end within 0.1 s of SIGTERM: killed"]


@pytest.mark.parametrize("codes, exit_code", [
  ((-15, 143), 143), ((-15, 130), 143), ((-9, -15), 1), ((-15, 3), 1)])
def test_a_signal_to_all_may_reach_the_launcher_after_the_ends_of_its_tasks(codes, exit_code):
  class Late(Scripted):
    def wait(self, interrupts, limit):
      os.kill(os.getpid(), signal.SIGTERM)
      super().wait(interrupts, limit)

  outcome, _ = run(Late(worker_0=codes[:1], worker_1=codes[1:]), describe_tasks(0, 2))
  assert outcome.exit_code == exit_code


@pytest.mark.parametrize("is_ours, code, said", [
  (True, 1, "ps 0 did not end within 0 s after the last worker"), (False, 0, "ok")])
def test_a_ps_that_stays_fails_the_job_only_if_it_is_a_program_of_ours(is_ours, code, said):
  backend = Scripted(ps_0=[None], worker_0=[0])
  outcome, lines = run(backend, describe_tasks(1, 1), is_ours=is_ours, end_limit=60.0)
  assert (outcome.exit_code, outcome.text) == (code, said)
  assert backend.signals == [("ps 0", "SIGTERM")]
  said = "job: the workers have ended with 0, and ps 0 still runs: ending it"
  assert (said in lines) != is_ours


def test_a_command_of_others_gives_no_reason_but_its_last_lines():
  outcome, _ = run(Scripted(worker_0=[97]), describe_tasks(0, 1), is_ours=False)
  assert outcome.text == "worker 0 ended with exit code 1" and not outcome.is_shown
  assert outcome.report[0].startswith("last lines of worker 0, process ")
  assert outcome.report[1:] == ["  why"]


def test_a_restarting_task_runs_again(set_timing):
  set_timing(restarts, restart_pause=0.01)
  backend = Scripted(worker_0=[1, -9, 0])
  outcome, lines = run(backend, describe_tasks(0, 1), max_restarts=2, is_ours=False)
  assert (outcome.exit_code, outcome.restarts) == (0, 2), lines
  assert [line for line in lines if "restart" in line] == [
    "job: worker 0 ended with exit code 1: restart 1 of 2 at once",
    "job: worker 0 was killed by SIGKILL: restart 2 of 2 in 0.01 s"]


def test_an_evaluator_that_waits_for_its_restart_at_the_limit_fails_the_job(set_timing):
  set_timing(restarts, restart_pause=600.0)
  set_timing(watch, evaluator_limit=0.05)
  backend = Scripted(ps_0=[0], worker_0=[0], evaluator_0=[1, 1])
  outcome, _ = run(backend, describe_tasks(1, 1, True), max_restarts=2, grace=60.0)
  assert (outcome.exit_code, outcome.text) == (
    1, "evaluator 0 did not come back within 0.05 s after the last ps")


def test_a_restarted_ps_does_not_wait_for_the_evaluator(set_timing):
  class Late(Scripted):
    """The worker ends when the ps is there again, and the evaluator when that ps is signalled."""

    def start_task(self, task):
      process = super().start_task(task)
      if task.name == "ps 0" and not self._codes["ps 0"]:
        self._due.append((self.started["worker 0"], 0))
      return process

    def signal_task(self, process, number):
      super().signal_task(process, number)
      self._due.append((self.started["evaluator 0"], 0))

  set_timing(watch, evaluator_limit=60.0)
  backend = Late(ps_0=[-9, None], worker_0=[None], evaluator_0=[None])
  outcome, lines = run(backend, describe_tasks(1, 1, True), max_restarts=1)
  assert (outcome.exit_code, outcome.text) == (0, "ok"), lines
  assert backend.signals == [("ps 0", "SIGTERM")]


def test_a_signal_ends_the_workers_first():
  class Interrupted(Scripted):
    def wait(self, interrupts, limit):
      if not self.signals:
        os.kill(os.getpid(), signal.SIGINT)

  backend = Interrupted(ps_0=[None], worker_0=[None])
  outcome, lines = run(backend, describe_tasks(1, 1))
  assert (outcome.exit_code, outcome.text) == (130, "ended by SIGINT")
  assert backend.signals == [("worker 0", "SIGINT"), ("ps 0", "SIGINT")]
  assert lines[1:] == ["job: SIGINT: ending the workers, then the others"]


def test_the_first_signal_after_a_failure_kills_nobody():
  class Interrupted(Scripted):
    def signal_task(self, process, number):
      super().signal_task(process, number)
      if process.name == "worker 0":
        os.kill(os.getpid(), signal.SIGINT)

  backend = Interrupted(ps_0=[None], worker_0=[None], worker_1=[3])
  outcome, lines = run(backend, describe_tasks(1, 2), end_limit=60.0)
  assert outcome.exit_code == 1
  assert backend.signals == [("worker 0", "SIGTERM"), ("ps 0", "SIGTERM")]
