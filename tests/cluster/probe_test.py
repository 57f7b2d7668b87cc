from __future__ import annotations

import signal
import time

import pytest

from tests import cluster_tasks, harness, strangers
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task


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


def look(address, timeout=20.0):
  """Returns (state, detail) of a probe for /job:ps/task:0."""
  seen = probe.probe_task(Task("ps", 0, address), timeout)
  assert not seen.is_up and seen.incarnation == 0
  return seen.state, seen.detail


def test_a_server_that_is_up(ps):
  seen = probe.probe_task(ps[0], 20.0)
  assert (seen.task, seen.state, seen.detail, seen.is_up) == (ps[0], "up", "up", True)
  assert str(seen) == "/job:ps/task:0 at %s: up" % ps[0].address
  assert probe.probe_task(ps[0], 20.0) == seen
  assert probe.probe_task(ps[1], 20.0).incarnation != seen.incarnation != 0


def test_a_server_of_another_task(ps):
  assert look(ps[1].address) == (
      "another task", "another task answers there: /job:ps/task:1")
  seen = probe.probe_task(Task("worker", 0, ps[0].address), 20.0)
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
    assert 0.3 < time.monotonic() - began < 20.0


def test_a_server_that_stands_still_and_goes_on(start):
  jobs = {"ps": harness.addresses(1)}
  server = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  server.wait_for("up")
  task = Task("ps", 0, jobs["ps"][0])
  before = probe.probe_task(task, 20.0)
  server.signal(signal.SIGSTOP)
  assert look(task.address, 0.4) == ("silent", "silent (no answer within 0.4 s)")
  server.signal(signal.SIGCONT)
  assert probe.probe_task(task, 20.0) == before


def test_a_server_that_was_restarted(start):
  jobs = {"ps": harness.addresses(1)}
  task, seen = Task("ps", 0, jobs["ps"][0]), []
  for _ in range(2):
    server = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    server.wait_for("up")
    seen.append(probe.probe_task(task, 20.0))
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
  assert probe.probe_task(ps[0], 20.0).state == "up"
