from __future__ import annotations

import logging
import re
import signal
import threading
import time

import pytest

from tests import cluster_tasks, harness, strangers
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task
from tf1ps.compat import LINK_CLOSED, LINK_NO_SERVER, LINK_PROXY, LINK_REFUSED


@pytest.fixture(scope="module")
def ps(forks):
  """Two ps, as a list of `description.Task`."""
  jobs = {"ps": harness.addresses(2)}
  tasks = [forks.start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for task in tasks:
    task.wait_for("up")
  yield [Task("ps", i, address) for i, address in enumerate(jobs["ps"])]
  for task in tasks:
    task.kill()


def look(address, timeout=harness.LIMIT):
  """Returns (state, detail) of a probe for /job:ps/task:0."""
  seen = probe.probe_task(Task("ps", 0, address), timeout)
  assert not seen.is_up and seen.incarnation == 0
  return seen.state, seen.detail


def test_a_server_that_is_up(ps):
  seen = probe.probe_task(ps[0], harness.LIMIT)
  assert (seen.task, seen.state, seen.detail, seen.is_up) == (ps[0], "up", "up", True)
  assert str(seen) == "/job:ps/task:0 at %s: up" % ps[0].address
  assert probe.probe_task(ps[0], harness.LIMIT) == seen
  assert probe.probe_task(ps[1], harness.LIMIT).incarnation != seen.incarnation != 0


def test_a_server_of_another_task(ps):
  assert look(ps[1].address) == (
      "another task", "another task answers there: /job:ps/task:1")
  seen = probe.probe_task(Task("worker", 0, ps[0].address), harness.LIMIT)
  assert (seen.state, seen.is_up) == ("another task", False)
  assert str(seen) == "/job:worker/task:0 at %s: another task answers there: /job:ps/task:0" % (
      ps[0].address)


def test_nobody_listens():
  assert look(harness.addresses(1)[0]) == ("refused", "refused (nothing listens on that port)")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "256.1.2.3"])
def test_no_such_host(host):
  assert look(host + ":2222") == ("no such host", "no such host")


def test_somebody_listens_and_is_silent():
  with strangers.silent() as address:
    began = time.monotonic()
    assert look(address, 0.4) == ("silent", "silent (no answer within 0.4 s)")
    assert time.monotonic() - began > 0.3


def test_a_server_that_stands_still_and_goes_on(start):
  jobs = {"ps": harness.addresses(1)}
  server = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  server.wait_for("up")
  task = Task("ps", 0, jobs["ps"][0])
  before = probe.probe_task(task, harness.LIMIT)
  server.signal(signal.SIGSTOP)
  assert look(task.address, 0.4) == ("silent", "silent (no answer within 0.4 s)")
  server.signal(signal.SIGCONT)
  assert probe.probe_task(task, harness.LIMIT) == before


def test_a_server_that_was_restarted(start):
  jobs = {"ps": harness.addresses(1)}
  task, seen = Task("ps", 0, jobs["ps"][0]), []
  for _ in range(2):
    server = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    server.wait_for("up")
    seen.append(probe.probe_task(task, harness.LIMIT))
    server.kill()
  assert [one.state for one in seen] == ["up", "up"]
  assert seen[0].incarnation != seen[1].incarnation
  assert look(task.address)[0] == "refused"


def test_a_web_server():
  with strangers.web_server() as address:
    assert look(address) == ("no TensorFlow server", "no TensorFlow server: it does not speak gRPC")


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 100])
def test_junk(answer):
  with strangers.talker(answer) as address:
    assert look(address) == ("no TensorFlow server", "no TensorFlow server: it does not speak gRPC")


def test_somebody_who_hangs_up():
  with strangers.talker(b"") as address:
    state, detail = look(address)
  assert state == "refused" and "Socket closed" in detail or "reset by peer" in detail


@pytest.mark.parametrize("status, seen", [
    (LINK_REFUSED, ("refused", "refused (nothing listens on that port)")),
    (LINK_NO_SERVER, ("refused", "refused (its sidecar answers, its task does not listen)")),
    (LINK_CLOSED, ("silent", "closed (the connection ended before the handshake; its log may say "
                   "why)"))])
def test_what_a_proxy_of_links_says(monkeypatch, status, seen):
  with strangers.web_server(status) as proxy:
    monkeypatch.setenv(LINK_PROXY, "http://" + proxy)
    assert look("127.0.0.1:1") == seen


def test_a_grpc_server_of_another_service():
  with strangers.grpc_server("somebody.Else", b"") as address:
    state, detail = look(address)
  assert state == "no TensorFlow server"
  assert detail.startswith("no TensorFlow server: ") and "not" in detail  # "Method not found!"


@pytest.mark.parametrize("answer, state, detail", [
    (b"\x08\x05", "no TensorFlow server",
     "no TensorFlow server: an answer in another format than TensorFlow's"),
    (b"", "another task", "another task answers there: a server without devices"),
])
def test_somebody_who_imitates_the_service(answer, state, detail):
  with strangers.grpc_server("tensorflow.WorkerService", answer) as address:
    assert look(address) == (state, detail)


@pytest.mark.parametrize("name", ["http_proxy", "grpc_proxy", "https_proxy"])
def test_no_proxy_is_asked(ps, monkeypatch, name):
  monkeypatch.setenv(name, "http://127.0.0.1:9")
  assert probe.probe_task(ps[0], harness.LIMIT).state == "up"


# Waiting for tasks.

NEVER = 1000.0  # a limit that no test lasts for


@pytest.fixture
def patience(monkeypatch):
  """Gives a busy machine its time: the probes of all tasks but those that are added have it."""
  silent, probe_task = [], probe.probe_task
  monkeypatch.setattr(probe, "probe_task", lambda task, timeout: probe_task(
    task, timeout if task in silent else harness.LIMIT))
  return silent.append


@pytest.fixture(scope="module")
def one_ps(forks):
  """A ps that is up."""
  jobs = {"ps": harness.addresses(1)}
  task = forks.start("ps", cluster_tasks.serve, jobs, "ps", 0)
  task.wait_for("up")
  yield Task("ps", 0, jobs["ps"][0])
  task.kill()


def test_returns_at_once_what_is_up(one_ps):
  seen = probe.wait_for_tasks([one_ps], timeout=NEVER)
  assert [(one.task, one.state) for one in seen] == [(one_ps, "up")] and seen[0].incarnation


def test_nothing_to_wait_for():
  assert probe.wait_for_tasks([], timeout=30) == []


def test_probes_in_the_tasks_order(one_ps):
  refused = [Task("ps", i, address) for i, address in enumerate(harness.addresses(3))]
  tasks = [refused[2], one_ps, refused[1]]
  assert [(one.task, one.state) for one in probe.probe_tasks(tasks, harness.LIMIT)] == [
      (refused[2], "refused"), (one_ps, "up"), (refused[1], "refused")]
  assert probe.probe_tasks([]) == []


def test_names_all_that_are_missing_with_address_and_reason(one_ps, patience):
  gone = Task("ps", 1, harness.addresses(1)[0])
  unknown = Task("ps", 2, "no-such-host.invalid:2222")
  other = Task("worker", 0, one_ps.address)
  with strangers.silent() as address:
    quiet = Task("ps", 3, address)
    patience(quiet)
    began = time.monotonic()
    with pytest.raises(probe.TaskUnavailableError) as raised:
      probe.wait_for_tasks([gone, one_ps, unknown, quiet, other], 1.0, "these did not come")
    assert time.monotonic() - began >= 1.0
  assert re.sub(r"after \d+ s|within \d\.\d s", "in time", str(raised.value)) == (
      "these did not come in time: "
      "/job:ps/task:1 at %s: refused (nothing listens on that port); "
      "/job:ps/task:2 at no-such-host.invalid:2222: no such host; "
      "/job:ps/task:3 at %s: silent (no answer in time); "
      "/job:worker/task:0 at %s: another task answers there: /job:ps/task:0" % (
          gone.address, address, one_ps.address))
  assert [(one.task, one.state) for one in raised.value.seen] == [
      (gone, "refused"), (unknown, "no such host"), (quiet, "silent"), (other, "another task")]


@pytest.mark.parametrize("timeout, probe_limit", [(0.3, NEVER), (1.7, probe.TIMING.probe_limit)])
def test_the_limit_is_kept_where_somebody_is_silent(set_timing, timeout, probe_limit):
  set_timing(probe, probe_limit=probe_limit)
  with strangers.silent() as address:
    began = time.monotonic()
    with pytest.raises(probe.TaskUnavailableError, match="silent"):
      probe.wait_for_tasks([Task("ps", 0, address)], timeout)
  assert time.monotonic() - began >= timeout


class Clock:
  """Stands in for the module `time`: time passes only for who sleeps, or by a test."""

  def __init__(self):
    self.now = 0.0

  def monotonic(self):
    return self.now

  def sleep(self, seconds):
    self.now += seconds


def test_a_short_last_probe_hides_no_reason(monkeypatch):
  task = Task("ps", 0, "no-such-host.invalid:2222")
  limits = []

  def probe_tasks(tasks, timeout):
    limits.append(timeout)
    state = probe.NO_SUCH_HOST if len(limits) == 1 else probe.SILENT
    return [probe.ProbeResult(task, state, state)]

  monkeypatch.setattr(probe, "probe_tasks", probe_tasks)
  monkeypatch.setattr(probe, "time", Clock())
  with pytest.raises(probe.TaskUnavailableError, match="no such host"):
    probe.wait_for_tasks([task], 0.5)
  assert len(limits) > 1 and max(limits) < probe.TIMING.probe_limit


def test_a_task_that_comes_late(start, one_ps, caplog, patience, set_timing):
  address, = harness.addresses(1)
  late = Task("late", 0, address)
  begun, found = threading.Event(), []
  set_timing(probe, reminder_interval=NEVER)

  def wait():
    found.extend(probe.wait_for_tasks([one_ps, late], NEVER, interrupted=begun.set))

  with caplog.at_level(logging.WARNING, "tf1ps"):
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(60)  # one round without it
    harness.wait_until(lambda: caplog.messages)
    server = start("late", cluster_tasks.serve, {"late": [address]}, "late", 0)
    server.wait_for("up")
    waiting.join(60)
  assert [(one.task, one.state) for one in found] == [(one_ps, "up"), (late, "up")]
  # Said once, as a rule: again only when it sees something else.
  assert 1 <= len(caplog.messages) <= 3
  assert re.match(r"waiting \(\d+ of 1000 s\) for /job:late/task:0 at %s: refused \(nothing "
                  r"listens on that port\)$" % address, caplog.messages[0])


def test_a_task_that_stops_while_others_are_waited_for(start, one_ps, monkeypatch):
  here, later = harness.addresses(2)
  jobs = {"ps": [one_ps.address, here, later]}
  first = start("ps", cluster_tasks.serve, jobs, "ps", 1)
  first.wait_for("up")
  rounds, probe_all, clock = [], probe.probe_tasks, Clock()
  clock.sleep = threading.Event().wait  # the clock stands until both have been seen as they are now

  def probe_and_note(tasks, timeout):
    found = probe_all(tasks, timeout)
    if [(one.task.index, one.state) for one in found] == [(1, "silent"), (2, "up")]:
      clock.now = 5.0
    return found

  def change():
    rounds.append(0)
    if len(rounds) == 1:
      first.signal(signal.SIGSTOP)
      start("ps", cluster_tasks.serve, jobs, "ps", 2).wait_for("up")

  monkeypatch.setattr(probe, "time", clock)
  monkeypatch.setattr(probe, "probe_tasks", probe_and_note)
  with pytest.raises(probe.TaskUnavailableError, match="after 5 s") as raised:
    probe.wait_for_tasks([Task("ps", 1, here), Task("ps", 2, later)], 4.0, interrupted=change)
  assert [(one.task.index, one.state) for one in raised.value.seen] == [(1, "silent")]
  assert rounds


def test_the_wait_can_be_interrupted():
  def interrupt():
    raise SystemExit(130)

  with pytest.raises(SystemExit) as raised:
    probe.wait_for_tasks([Task("ps", 0, harness.addresses(1)[0])], NEVER, interrupted=interrupt)
  assert raised.value.code == 130


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_limit_that_is_none(timeout):
  with pytest.raises(ValueError, match="must be a positive number of seconds, got %d" % timeout):
    probe.wait_for_tasks([], timeout)


# The watch.


class Rounds:
  """A watch with short rounds, what it has seen in them, and what it said.

  Its clock stands, but for `pass_in_silence`.
  """

  def __init__(self, monkeypatch, seen, heartbeat_timeout):
    monkeypatch.setattr(probe, "TIMING", probe.TIMING._replace(heartbeat_interval=0.1))
    self._clock, self._due = Clock(), 0.0
    monkeypatch.setattr(probe, "time", self._clock)
    self.states, self.calls, self.called = [], [], threading.Event()
    self.goes_on = None  # what the calls return
    probe_all = probe.probe_tasks

    def probe_all_and_note(tasks, timeout):
      found = probe_all(tasks, timeout)
      if found[0].is_silent:
        self._clock.now, self._due = self._clock.now + self._due, 0.0
      self.states.append([one.state for one in found])
      return found

    monkeypatch.setattr(probe, "probe_tasks", probe_all_and_note)
    self.watch = probe.TaskWatch(
        seen, heartbeat_timeout, on_gone=lambda one: self._call("gone", one),
        on_lost=lambda one, silence: self._call("lost", one, silence))

  def _call(self, *call):
    self.calls.append(call)
    self.called.set()
    return self.goes_on

  def wait_for(self, states, count=1):
    """Waits for so many more rounds with these states."""
    before = len(self.states)
    harness.wait_until(lambda: self.states[before:].count(states) >= count)

  def pass_in_silence(self, seconds):
    """Has so many seconds pass in the next round in which the first task is silent."""
    self._due = seconds
    harness.wait_until(lambda: not self._due)


@pytest.fixture
def own_ps(start):
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


def test_a_task_that_was_restarted_is_gone(own_ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(own_ps.task, harness.LIMIT)], 60.0)
  own_ps.process.kill()
  own_ps.again()
  rounds.watch.start()
  assert rounds.called.wait(60)
  (what, one), = rounds.calls
  assert (what, one.task, one.state) == ("gone", own_ps.task, "up")
  assert str(one) == "/job:ps/task:0 at %s: it was started again" % own_ps.task.address
  rounds.watch.stop()


def test_a_task_that_refuses_is_gone(own_ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(own_ps.task, harness.LIMIT)], 60.0)
  rounds.watch.start()
  rounds.wait_for(["up"], 2)
  assert not rounds.calls
  own_ps.process.kill()
  assert rounds.called.wait(60)
  (what, one), = rounds.calls
  assert (what, one.task, one.state) == ("gone", own_ps.task, "refused")
  assert rounds.states[-1] == ["refused"]
  rounds.watch.stop()
  assert len(rounds.calls) == 1


def test_one_refusal_does_not_count(own_ps, monkeypatch):
  up = probe.probe_task(own_ps.task, harness.LIMIT)
  refused = up._replace(state="refused")
  rounds = Rounds(monkeypatch, [up], 60.0)
  assert [rounds.watch._judge(one) for one in (refused, up, refused, refused)] == [
      False, False, False, True]
  assert rounds.calls == [("gone", refused)]


def test_a_task_that_nobody_misses_is_watched_on(own_ps, monkeypatch):
  up = probe.probe_task(own_ps.task, harness.LIMIT)
  refused, again = up._replace(state="refused"), up._replace(incarnation=up.incarnation + 1)
  rounds = Rounds(monkeypatch, [up], 60.0)
  rounds.goes_on = True
  assert [rounds.watch._judge(one) for one in (refused, refused, refused, refused, again)] == (
    [False] * 5)
  assert [(what, one.state) for what, one in rounds.calls] == [
    ("gone", "refused"), ("gone", "refused"), ("gone", "up")]


def test_a_refusal_is_looked_at_again_soon(own_ps, monkeypatch):
  up = probe.probe_task(own_ps.task, harness.LIMIT)
  watch = probe.TaskWatch([up], 60.0, None, None)
  pauses = [(watch._judge(one), watch._pause())[1] for one in (
    up, up._replace(state="refused"), up)]
  assert pauses == [probe.TIMING.heartbeat_interval, probe.TIMING.poll_interval,
                    probe.TIMING.heartbeat_interval]


def test_a_silent_task_is_heartbeat_timeout_the_limit(own_ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(own_ps.task, harness.LIMIT)], 1.5)
  rounds.watch.start()
  rounds.wait_for(["up"])
  own_ps.process.signal(signal.SIGSTOP)
  rounds.pass_in_silence(1.0)
  rounds.wait_for(["silent"])
  assert not rounds.calls
  rounds.pass_in_silence(0.5)
  assert rounds.called.wait(60)
  (what, one, silence), = rounds.calls
  assert (what, one.task, one.state, silence) == ("lost", own_ps.task, "silent", 1.5)
  rounds.watch.stop()


def test_a_silent_task_that_comes_back_is_not_lost(own_ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(own_ps.task, harness.LIMIT)], 1.5)
  rounds.watch.start()
  rounds.wait_for(["up"])
  for _ in range(3):  # together longer than the limit
    own_ps.process.signal(signal.SIGSTOP)
    rounds.pass_in_silence(1.0)
    own_ps.process.signal(signal.SIGCONT)
    rounds.wait_for(["up"])
  assert not rounds.calls
  rounds.watch.stop()


def test_one_call_for_several_tasks(start, monkeypatch):
  jobs = {"ps": harness.addresses(2)}
  processes = [start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for process in processes:
    process.wait_for("up")
  tasks = [Task("ps", i, address) for i, address in enumerate(jobs["ps"])]
  rounds = Rounds(monkeypatch, probe.probe_tasks(tasks, harness.LIMIT), 60.0)
  rounds.watch.start()
  rounds.wait_for(["up", "up"])
  for process in processes:
    process.kill()
  assert rounds.called.wait(60)
  rounds.watch._thread.join(60)
  assert not rounds.watch._thread.is_alive() and len(rounds.calls) == 1


def test_nothing_is_said_after_stop(own_ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(own_ps.task, harness.LIMIT)], 60.0)
  rounds.watch.start()
  rounds.wait_for(["up"])
  rounds.watch.stop()
  assert not rounds.watch._thread.is_alive()
  count = len(rounds.states)
  own_ps.process.kill()
  assert (rounds.calls, len(rounds.states)) == ([], count)


def test_it_can_be_stopped_from_its_own_call(own_ps, monkeypatch):
  seen = probe.probe_task(own_ps.task, harness.LIMIT)._replace(incarnation=1)
  rounds = Rounds(monkeypatch, [seen], 60.0)
  rounds.watch._on_gone = lambda one: (rounds.watch.stop(), rounds.called.set())
  rounds.watch.start()
  assert rounds.called.wait(60)


def test_a_watch_that_stood_still_itself_gives_time(own_ps, monkeypatch):
  rounds = Rounds(monkeypatch, [probe.probe_task(own_ps.task, harness.LIMIT)], 1.25)
  rounds.watch.start()
  rounds.wait_for(["up"])
  own_ps.process.signal(signal.SIGSTOP)
  rounds.pass_in_silence(2.5)  # as when a machine sleeps: three rounds and two probes, and more
  rounds.pass_in_silence(1.0)
  rounds.wait_for(["silent"])
  assert not rounds.calls
  rounds.pass_in_silence(0.25)
  assert rounds.called.wait(60)
  (what, one, silence), = rounds.calls
  assert (what, one.task, silence) == ("lost", own_ps.task, 1.25)
  rounds.watch.stop()


def test_without_tasks_there_is_nothing_to_watch():
  one = probe.TaskWatch([], 1.0, None, None)
  one.start()
  assert not one._thread.is_alive()
  one.stop()


@pytest.mark.parametrize("heartbeat_timeout", [0, -1])
def test_a_watch_limit_that_is_none(heartbeat_timeout):
  with pytest.raises(ValueError, match="heartbeat_timeout must be a positive number of seconds"):
    probe.TaskWatch([], heartbeat_timeout, None, None)
