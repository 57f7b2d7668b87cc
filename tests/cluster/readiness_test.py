from __future__ import annotations

import logging
import re
import signal
import threading
import time

import pytest

from tests import cluster_tasks, harness, strangers
from tf1ps.cluster import readiness
from tf1ps.cluster.description import Task


@pytest.fixture(scope="module")
def ps(forks):
  """A ps that is up."""
  jobs = {"ps": harness.addresses(1)}
  task = forks.start("ps", cluster_tasks.serve, jobs, "ps", 0)
  task.wait_for("up")
  yield Task("ps", 0, jobs["ps"][0])
  task.kill()


def test_returns_at_once_what_is_up(ps):
  began = time.monotonic()
  seen = readiness.wait_for_tasks([ps], timeout=30)
  assert [(one.task, one.state) for one in seen] == [(ps, "up")] and seen[0].incarnation
  assert time.monotonic() - began < 20.0


def test_nothing_to_wait_for():
  assert readiness.wait_for_tasks([], timeout=30) == []


def test_probes_in_the_tasks_order(ps):
  refused = [Task("ps", i, address) for i, address in enumerate(harness.addresses(3))]
  tasks = [refused[2], ps, refused[1]]
  assert [(one.task, one.state) for one in readiness.probe_tasks(tasks, 20.0)] == [
      (refused[2], "refused"), (ps, "up"), (refused[1], "refused")]
  assert readiness.probe_tasks([]) == []


def test_names_all_that_are_missing_with_address_and_reason(ps):
  gone = Task("ps", 1, harness.addresses(1)[0])
  unknown = Task("ps", 2, "no-such-host.invalid:2222")
  other = Task("worker", 0, ps.address)
  with strangers.silent() as address:
    quiet = Task("ps", 3, address)
    began = time.monotonic()
    with pytest.raises(readiness.TaskUnavailableError) as raised:
      readiness.wait_for_tasks([gone, ps, unknown, quiet, other], 1.0, "these did not come")
    took = time.monotonic() - began
  assert 1.0 <= took < 20.0
  assert re.sub(r"after \d+ s|within 1\.\d s", "in time", str(raised.value)) == (
      "these did not come in time: "
      "/job:ps/task:1 at %s: refused (nothing listens on that port); "
      "/job:ps/task:2 at no-such-host.invalid:2222: no such host; "
      "/job:ps/task:3 at %s: silent (no answer in time); "
      "/job:worker/task:0 at %s: another task answers there: /job:ps/task:0" % (
          gone.address, address, ps.address))
  assert [(one.task, one.state) for one in raised.value.seen] == [
      (gone, "refused"), (unknown, "no such host"), (quiet, "silent"), (other, "another task")]


@pytest.mark.parametrize("timeout", [0.3, 1.7])
def test_the_limit_is_kept_where_somebody_is_silent(timeout):
  with strangers.silent() as address:
    began = time.monotonic()
    with pytest.raises(readiness.TaskUnavailableError, match="silent"):
      readiness.wait_for_tasks([Task("ps", 0, address)], timeout)
  assert timeout <= time.monotonic() - began < timeout + 20.0


def test_a_task_that_comes_late(start, ps, caplog):
  address, = harness.addresses(1)
  late = Task("late", 0, address)
  begun, found = threading.Event(), []

  def wait():
    found.extend(readiness.wait_for_tasks([ps, late], 60, interrupted=begun.set))
    found.append(time.monotonic())

  with caplog.at_level(logging.WARNING, "tf1ps"):
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(60)  # one round without it
    harness.wait_until(lambda: caplog.messages)
    server = start("late", cluster_tasks.serve, {"late": [address]}, "late", 0)
    server.wait_for("up")
    up = time.monotonic()
    waiting.join(60)
  assert [(one.task, one.state) for one in found[:2]] == [(ps, "up"), (late, "up")]
  assert found[2] - up < 20.0
  # Said once, as a rule: again only when it sees something else, or in a while.
  assert 1 <= len(caplog.messages) <= 3
  assert re.match(r"waiting \(\d+ of 60 s\) for /job:late/task:0 at %s: refused \(nothing listens "
                  r"on that port\)$" % address, caplog.messages[0])


def test_a_task_that_stops_while_others_are_waited_for(start, ps):
  here, later = harness.addresses(2)
  jobs = {"ps": [ps.address, here, later]}
  first = start("ps", cluster_tasks.serve, jobs, "ps", 1)
  first.wait_for("up")
  rounds = []

  def change():
    rounds.append(0)
    if len(rounds) == 1:
      first.signal(signal.SIGSTOP)
      start("ps", cluster_tasks.serve, jobs, "ps", 2).wait_for("up")

  began = time.monotonic()
  with pytest.raises(readiness.TaskUnavailableError) as raised:
    readiness.wait_for_tasks([Task("ps", 1, here), Task("ps", 2, later)], 4.0, interrupted=change)
  assert [(one.task.index, one.state) for one in raised.value.seen] == [(1, "silent")]
  assert rounds and 4.0 <= time.monotonic() - began < 30.0


def test_the_wait_can_be_interrupted():
  def interrupt():
    raise SystemExit(130)

  began = time.monotonic()
  with pytest.raises(SystemExit) as raised:
    readiness.wait_for_tasks([Task("ps", 0, harness.addresses(1)[0])], 60, interrupted=interrupt)
  assert raised.value.code == 130 and time.monotonic() - began < 20.0


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_limit_that_is_none(timeout):
  with pytest.raises(ValueError, match="must be a positive number of seconds, got %d" % timeout):
    readiness.wait_for_tasks([], timeout)
