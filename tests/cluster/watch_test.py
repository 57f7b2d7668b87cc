from __future__ import annotations

import signal
import threading
import time

import pytest

from tests import cluster_tasks, harness
from tf1ps.cluster import probe, readiness, watch
from tf1ps.cluster.description import Task


class Rounds:
  """A watch with short rounds, what it has seen in them, and what it said."""

  def __init__(self, monkeypatch, seen, heartbeat_timeout):
    monkeypatch.setattr(watch, "TIMING", watch.TIMING._replace(heartbeat_interval=0.1))
    self.states, self.calls, self.called = [], [], threading.Event()
    probe_all = readiness.probe_tasks

    def probe_all_and_note(tasks, timeout):
      found = probe_all(tasks, timeout)
      self.states.append([one.state for one in found])
      return found

    monkeypatch.setattr(readiness, "probe_tasks", probe_all_and_note)
    self.watch = watch.TaskWatch(
        seen, heartbeat_timeout, on_gone=lambda one: self._call("gone", one),
        on_lost=lambda one, silence: self._call("lost", one, silence))

  def _call(self, *call):
    self.calls.append(call)
    self.called.set()

  def wait_for(self, states, count=1):
    """Waits for so many more rounds with these states."""
    before = len(self.states)
    harness.wait_until(lambda: self.states[before:].count(states) >= count)


@pytest.fixture
def ps(start):
  """Starts ps 0; returns (its process, its task)."""
  def start_ps(address):
    process = start("ps", cluster_tasks.serve, {"ps": [address]}, "ps", 0)
    process.wait_for("up")
    return process

  address, = harness.addresses(1)
  start_ps.process = start_ps(address)
  start_ps.again = lambda: start_ps(address)
  start_ps.task = Task("ps", 0, address)
  return start_ps


def test_a_task_that_was_restarted_is_gone(ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(ps.task, 20.0)], 60.0)
  ps.process.kill()
  ps.again()
  rounds.watch.start()
  assert rounds.called.wait(60)
  (what, one), = rounds.calls
  assert (what, one.task, one.state) == ("gone", ps.task, "up")
  assert str(one) == "/job:ps/task:0 at %s: it was started again" % ps.task.address
  rounds.watch.stop()


def test_a_task_that_refuses_is_gone(ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(ps.task, 20.0)], 60.0)
  rounds.watch.start()
  rounds.wait_for(["up"], 2)
  assert not rounds.calls
  ps.process.kill()
  assert rounds.called.wait(60)
  (what, one), = rounds.calls
  assert (what, one.task, one.state) == ("gone", ps.task, "refused")
  assert rounds.states[-1] == ["refused"]
  rounds.watch.stop()
  assert len(rounds.calls) == 1


def test_one_refusal_does_not_count(ps, monkeypatch):
  up = probe.probe_task(ps.task, 20.0)
  refused = up._replace(state="refused")
  rounds = Rounds(monkeypatch, [up], 60.0)
  assert [rounds.watch._judge(one) for one in (refused, up, refused, refused)] == [
      False, False, False, True]
  assert rounds.calls == [("gone", refused)]


def test_a_silent_task_is_heartbeat_timeout_the_limit(ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(ps.task, 20.0)], 1.5)
  rounds.watch.start()
  rounds.wait_for(["up"])
  ps.process.signal(signal.SIGSTOP)
  began = time.monotonic()
  assert rounds.called.wait(60)
  took = time.monotonic() - began
  (what, one, silence), = rounds.calls
  assert (what, one.task, one.state) == ("lost", ps.task, "silent")
  assert 1.4 < took < 20.0 and 1.5 <= silence < 20.0
  rounds.watch.stop()


def test_a_silent_task_that_comes_back_is_not_lost(ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(ps.task, 20.0)], 3.0)
  rounds.watch.start()
  rounds.wait_for(["up"])
  for _ in range(3):  # together longer than the limit
    ps.process.signal(signal.SIGSTOP)
    rounds.wait_for(["silent"])
    ps.process.signal(signal.SIGCONT)
    rounds.wait_for(["up"])
  assert not rounds.calls
  rounds.watch.stop()


def test_one_call_for_several_tasks(start, monkeypatch):
  jobs = {"ps": harness.addresses(2)}
  processes = [start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for process in processes:
    process.wait_for("up")
  tasks = [Task("ps", i, address) for i, address in enumerate(jobs["ps"])]
  rounds = Rounds(monkeypatch, readiness.probe_tasks(tasks, 20.0), 60.0)
  rounds.watch.start()
  rounds.wait_for(["up", "up"])
  for process in processes:
    process.kill()
  assert rounds.called.wait(60)
  rounds.watch._thread.join(60)
  assert not rounds.watch._thread.is_alive() and len(rounds.calls) == 1


def test_nothing_is_said_after_stop(ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(ps.task, 20.0)], 60.0)
  rounds.watch.start()
  rounds.wait_for(["up"])
  rounds.watch.stop()
  assert not rounds.watch._thread.is_alive()
  count = len(rounds.states)
  ps.process.kill()
  assert (rounds.calls, len(rounds.states)) == ([], count)


def test_it_can_be_stopped_from_its_own_call(ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(ps.task, 20.0)._replace(incarnation=1)], 60.0)
  rounds.watch._on_gone = lambda one: (rounds.watch.stop(), rounds.called.set())
  rounds.watch.start()
  assert rounds.called.wait(60)


def test_a_watch_that_stood_still_itself_gives_time(ps, start):
  watcher = start("watcher", cluster_tasks.watch, ps.task.address, 1.2)
  watcher.wait_for("round")
  ps.process.signal(signal.SIGSTOP)
  rounds = len(watcher.lines)
  harness.wait_until(lambda: len(watcher.lines) > rounds)  # and now it waits for an answer
  watcher.signal(signal.SIGSTOP)
  began = time.monotonic()  # as when a machine sleeps: three rounds and two seconds, and more
  harness.wait_until(lambda: time.monotonic() - began > 2.6)
  watcher.signal(signal.SIGCONT)
  with pytest.raises(AssertionError, match="^no '/job:ps/task:0' within 0.8 s"):
    watcher.wait_for("/job:ps/task:0", 0.8)
  assert watcher.wait_for("/job:ps/task:0").startswith("lost /job:ps/task:0")


def test_without_tasks_there_is_nothing_to_watch():
  one = watch.TaskWatch([], 1.0, None, None)
  one.start()
  assert not one._thread.is_alive()
  one.stop()


@pytest.mark.parametrize("heartbeat_timeout", [0, -1])
def test_a_limit_that_is_none(heartbeat_timeout):
  with pytest.raises(ValueError, match="heartbeat_timeout must be a positive number of seconds"):
    watch.TaskWatch([], heartbeat_timeout, None, None)
