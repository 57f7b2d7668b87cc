from __future__ import annotations

import functools
import os
import signal
import socket
import threading
import time

import pytest

from tests import clock_tasks, cluster_tasks, harness, state_tasks
from tf1ps.cluster.description import Task
from tf1ps.compat import Timing, own_identity, worker_service
from tf1ps.state import containers, control, heartbeat


@pytest.fixture
def beats(ps, set_timing):
  """Makes heartbeats on a control task without records; stops them."""
  set_timing(control, probe_limit=harness.LIMIT)
  worker_service.cleanup_all(ps.address, [containers.CONTROL], harness.LIMIT)
  made = []

  def make(job, index, role="worker", container="", heartbeat_timeout=30.0, **kwargs):
    table = control.ControlTable("grpc://" + ps.address, ps, ps, harness.LIMIT)
    made.append(heartbeat.Heartbeat(
        table, Task(job, index, "a:1"), role, container, heartbeat_timeout, **kwargs))
    return made[-1]

  yield make
  for sender in made:
    sender.stop()


def test_others_see_what_a_task_says_of_itself(beats):
  chief, worker = beats("worker", 0, "chief"), beats("worker", 1)
  assert worker.members() == [] and worker.silence is None
  began = time.monotonic()
  chief.beat()
  chief.set(run="r", state=heartbeat.MEMBER_TRAINING, step=3, global_step=7, examples=96)
  chief.beat()
  worker.beat()
  seen = worker.members()
  silence, passed = worker.silence, time.monotonic() - began
  assert 0.0 <= seen[0].age <= passed + 0.01 and 0.0 <= silence <= passed  # a stamp is rounded
  assert [member._replace(age=0.0) for member in seen] == [
      heartbeat.Member("worker", 0, "chief", socket.gethostname(), os.getpid(), "r", "training", 3,
                        7, 96, "", 0.0, process=own_identity()),
      heartbeat.Member("worker", 1, "worker", socket.gethostname(), os.getpid(), "", "starting", 0,
                        -1, 0, "", 0.0, process=own_identity())]
  assert seen[0].name == "/job:worker/task:0"
  assert not seen[0].has_ended and not worker.is_lost(seen[0])
  assert (chief.get("step"), worker.get("step")) == (3, 0)


def test_the_rates_are_those_from_the_first_step_on():
  rates = heartbeat._Rates()
  assert rates.per_second() == (0.0, 0.0)
  rates.note(0.0, 0, 0)
  rates.note(5.0, 1, 100032)  # with the examples of an earlier process
  assert rates.per_second() == (0.0, 0.0)
  rates.note(6.0, 11, 100352)
  assert rates.per_second() == (10.0, 320.0)
  for second in range(7, 30):
    rates.note(float(second), 11 + 20 * (second - 6), 100352 + 640 * (second - 6))
  assert rates.per_second() == (20.0, 640.0)  # the slow second is forgotten
  rates.note(30.0, 3, 96)  # a process that begins anew
  assert rates.per_second() == (0.0, 0.0)


class Figures:
  """As much of a task's figures as a heartbeat uses."""

  steps = 7

  def to_json(self):
    return {"loss": 0.5}


def test_figures_travel_with_the_heartbeat_and_never_end_it(beats):
  sender = beats("worker", 1, heartbeat_timeout=90.0)
  sender.set(step=3)
  sender.describe_by(Figures)
  sender.beat()
  seen, = sender.members()
  assert (seen.step, seen.figures, seen.timeout, list(seen.waits)) == (7, {"loss": 0.5}, 90.0, [])
  sender.describe_by(lambda: 1 / 0)
  sender.beat()
  seen, = sender.members()
  assert (seen.step, seen.figures) == (3, {})


def test_the_last_heartbeat_of_this_process(beats):
  for index in (1, 2):
    sender = beats("worker", index)
    sender.start()
    assert heartbeat.latest_heartbeat() is sender


def test_members_are_sorted_and_those_of_one_container(beats):
  for job, index, container in [("worker", 10, "a"), ("worker", 2, "a"), ("ps", 0, "a"),
                                ("worker", 0, ""), ("worker", 1, "a/b"), ("chief", 0, "a")]:
    beats(job, index, container=container).beat()
  watcher = beats("worker", 11, container="a")
  watcher.beat()
  assert [m.name for m in watcher.members()] == [
      "/job:chief/task:0", "/job:ps/task:0", "/job:worker/task:2", "/job:worker/task:10",
      "/job:worker/task:11"]


def test_ages_grow_between_beats(beats):
  sender = beats("worker", 0)
  sender.beat()
  harness.wait_until(lambda: sender.members()[0].age > 0.2)
  harness.wait_until(lambda: sender.silence > 0.2)
  began = time.monotonic()
  sender.beat()
  assert 0.0 <= sender.members()[0].age < time.monotonic() - began + 0.01  # a stamp is rounded
  assert 0.0 <= sender.silence < time.monotonic() - began


def test_what_an_earlier_process_of_this_task_said_is_kept(beats):
  began = time.monotonic()
  first = beats("worker", 1)
  first.set(run="r", examples=64)
  first.beat()
  assert first.previous is None
  beats("worker", 2).beat()
  second = beats("worker", 1)
  assert second.previous is None
  second.set(examples=1)
  second.beat()
  second.beat()
  assert (second.previous.run, second.previous.examples) == ("r", 64)
  assert second.previous.age < time.monotonic() - began + 0.01  # a stamp is rounded
  assert beats("worker", 1, container="other").previous is None


def test_it_beats_by_itself(beats, set_timing):
  set_timing(heartbeat, heartbeat_interval=1.0)
  times, three = [], threading.Event()

  def note(records):
    times.append((time.monotonic(), sorted(records)))
    if len(times) == 3:
      three.set()

  sender = beats("worker", 0, heartbeat_timeout=1.0, on_records=note)
  sender.start()
  sender.start()
  assert three.wait(60)
  assert times[2][0] - times[0][0] > 0.39  # two pauses, which begin after the notes
  assert times[2][1] == ["member::worker:0"]
  sender.stop()
  assert not sender._thread.is_alive()
  count = len(times)
  sender.stop()
  assert len(times) == count


@pytest.mark.parametrize("heartbeat_timeout, seconds", [(30.0, 1.0), (5.0, 1.0), (2.0, 0.4)])
def test_it_beats_once_a_second_and_five_times_before_it_counts_as_lost(
    beats, set_timing, heartbeat_timeout, seconds):
  set_timing(heartbeat, heartbeat_interval=Timing().heartbeat_interval)
  assert beats("worker", 0, heartbeat_timeout=heartbeat_timeout)._every == seconds


def test_the_end_is_reported(beats):
  one, watcher = beats("worker", 0), beats("worker", 1)
  one.beat()
  one.report(heartbeat.MEMBER_FAILED, "NaN loss")
  watcher.beat()
  member = watcher.members()[0]
  assert (member.state, member.reason, member.has_ended) == ("failed", "NaN loss", True)
  one.report(heartbeat.MEMBER_DONE, "")
  watcher.beat()
  assert (watcher.members()[0].state, watcher.members()[0].reason) == ("done", "")


def test_a_report_that_nobody_hears(set_timing):
  control_task = Task("ps", 0, harness.addresses(1)[0])
  sender = heartbeat.Heartbeat(
      control.ControlTable("grpc://" + control_task.address, control_task, control_task),
      control_task, "ps", "", 30.0)
  for limit, unheard_limit in ((0.25, 1000.0), (1000.0, 0.25)):  # the shorter one counts
    set_timing(heartbeat, unheard_report_limit=unheard_limit)
    began = time.monotonic()
    with pytest.raises(control.ControlError, match="^/job:ps/task:0 at .* is not there: refused"):
      sender.report(heartbeat.MEMBER_DONE, "all done", limit=limit)
    assert time.monotonic() - began >= 0.25
  with pytest.raises(control.ControlError):
    sender.beat()
  sender.try_beat()
  assert sender.silence is None and sender.members() == []


def lost(sender):
  return [member.index for member in sender.members() if sender.is_lost(member)]


@pytest.mark.parametrize("state, reason, step, is_lost, said", [
  (heartbeat.MEMBER_DONE, "", 7, True, "has done its part and left"),
  (heartbeat.MEMBER_FAILED, "ValueError: no", 7, True, "failed: ValueError: no"),
  (heartbeat.MEMBER_TRAINING, "", 7, True, "is lost: silent for 31 s, last seen at global step 7"),
  (heartbeat.MEMBER_STARTING, "", -1, True, "is lost: silent for 31 s"),
  (heartbeat.MEMBER_TRAINING, "", 7, False, "")])
def test_the_end_of_a_task_in_the_messages_of_the_others(state, reason, step, is_lost, said):
  member = heartbeat.Member(
    "worker", 1, "worker", "host", 7, "run", state, 3, step, 0, reason, age=31.2)
  assert member.say_end(is_lost) == said


def test_who_has_ended_is_not_lost(beats):
  done, silent = beats("worker", 0), beats("worker", 1)
  for sender in (done, silent):
    sender.beat()
  done.report(heartbeat.MEMBER_DONE, "")
  watcher = beats("worker", 2, heartbeat_timeout=1.0)
  watcher.beat()
  assert lost(watcher) == []  # it has only begun to look
  assert harness.wait_until(lambda: watcher.beat() or lost(watcher)) == [1]
  # Again and again: a busy machine may hold this process up between the two.
  harness.wait_until(lambda: silent.beat() or watcher.beat() or lost(watcher) == [])


@pytest.fixture
def members(start):
  """Starts a ps and workers that beat; returns (ps, its task, workers) once all know each other.

  Nobody is lost before the test moves a clock (see `clock_tasks`).
  """
  def start_all(count):
    jobs = {"ps": harness.addresses(1), "worker": harness.addresses(count)}
    control_task = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    control_task.wait_for("up")
    workers = [start("worker %d" % i, clock_tasks.run, state_tasks.member, jobs, i,
                     clock_tasks.LIMIT) for i in range(count)]
    for worker in workers:
      worker.wait_for("known %s lost []" % list(range(count)))
    return control_task, Task("ps", 0, jobs["ps"][0]), workers

  return start_all


def wait_until_they_have_read(task, *indices):
  """Waits until these workers have read what each of them sends from now on, and used it."""
  table = control.ControlTable("grpc://" + task.address, task, task, harness.LIMIT)

  def have_beaten(began):
    passed = time.monotonic() - began
    try:
      seen = heartbeat.members_of(table.read(), "")
    except control.ControlError:  # it has stood still, and is busy
      return False
    return set(indices) <= {member.index for member in seen if member.age < passed}

  for _ in range(3):  # all have sent, all have read it, and each goes on
    harness.wait_until(functools.partial(have_beaten, time.monotonic()))
  table.close()


def let_pass(seconds):
  """Waits for the time alone: what is tested is that nothing comes of it."""
  began = time.monotonic()
  harness.wait_until(lambda: time.monotonic() - began > seconds)


def sayings(worker):
  return [line for line in worker.lines if line.startswith("known")]


def wait_for_last(worker, line):
  harness.wait_until(lambda: sayings(worker)[-1] == line)


@pytest.mark.slow
def test_a_silent_member_is_lost_until_it_comes_back(members):
  _, task, workers = members(3)
  workers[1].signal(signal.SIGSTOP)
  wait_until_they_have_read(task, 0, 2)
  for i in (0, 2):
    assert all("lost []" in line for line in sayings(workers[i]))
    clock_tasks.begin_silence(workers[i])
  wait_until_they_have_read(task, 0, 2)
  for i in (0, 2):
    clock_tasks.end_silence(workers[i])
    workers[i].wait_for("known [0, 1, 2] lost [1]")
  before = len(sayings(workers[1]))
  workers[1].signal(signal.SIGUSR2)  # as by `begin_silence`, when it goes on
  workers[1].signal(signal.SIGCONT)
  for i in (0, 2):
    wait_for_last(workers[i], "known [0, 1, 2] lost []")
  # Who was held up itself gives the others time before it calls anyone lost.
  harness.wait_until(lambda: clock_tasks.moves(workers[1]) == 1)
  wait_until_they_have_read(task, 0, 1, 2)
  clock_tasks.end_silence(workers[1])
  let_pass(1.5)  # the time that it gives
  assert all("lost []" in line for line in sayings(workers[1])[before:])


@pytest.mark.slow
def test_nobody_is_lost_when_the_control_task_stood_still(members):
  control_task, task, workers = members(2)
  let_pass(1.5)  # they have watched for long enough to call somebody lost
  control_task.signal(signal.SIGSTOP)
  for worker in workers:
    clock_tasks.begin_silence(worker)
  for worker in workers:
    worker.wait_for("no answer")
  control_task.signal(signal.SIGCONT)
  wait_until_they_have_read(task, 0, 1)
  for worker in workers:
    clock_tasks.end_silence(worker)
  let_pass(1.5)  # the time that they give each other
  for worker in workers:
    wait_for_last(worker, "known [0, 1] lost []")
    assert all("lost []" in line for line in sayings(worker))
  workers[1].kill()
  wait_until_they_have_read(task, 0)
  clock_tasks.begin_silence(workers[0])
  clock_tasks.end_silence(workers[0])
  workers[0].wait_for("lost [1]")  # and then who really is
