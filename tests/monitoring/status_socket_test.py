from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

from tests import harness
from tests.training import local_server
from tf1ps.monitoring import status, status_socket
from tf1ps.state import run

ASKS = """
import sys
from tf1ps.cli import status
code = status.run(sys.argv[1:])
print(code, [name for name in sys.modules if name.startswith("tensorflow")])
"""


@pytest.fixture(autouse=True)
def patience(monkeypatch, set_timing):
  """Gives a busy machine its time to look, to answer, and to come from one test to the next."""
  set_timing(status, alive_within=10 * harness.LIMIT)
  monkeypatch.setattr(status_socket, "_LIMIT", harness.LIMIT)
  monkeypatch.setattr(status_socket, "_ANSWER_LIMIT", 2 * harness.LIMIT)


@pytest.fixture
def temporary(monkeypatch, tmp_path):
  """The system's temporary directory, without other jobs. Its path is too long for a socket."""
  folder = tmp_path / ("long" * 30)
  folder.mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(folder))
  return folder


@pytest.fixture(scope="module")
def worker():
  """Worker 1 of a job, whose records a chief without ps keeps."""
  of = local_server.record("here")
  table = local_server.table(of)
  run.write_run(table, "here", run.RunRecord(
    id="r", initialised=True, ended=False, failed=False, jobs=of.cluster.to_json(), signature=[],
    writes=1))
  table.close()
  return local_server.Worker(of, 1)


@pytest.fixture
def address(worker):
  """Of the task that keeps the records; worker 1 has just sent a heartbeat."""
  worker.say(run="r", state="training", step=5, global_step=9)
  return local_server.record("here").cluster.task.address


def test_a_task_answers_for_its_job_until_the_end_of_the_block(temporary, address):
  assert status_socket.ask_here([address]) is None
  with status_socket.answer_here(address):
    job, = [one for one in status_socket.ask_here(["127.0.0.1:1", address]).jobs
            if one.container == "here"]
    assert status_socket.ask_here(["127.0.0.1:1"]) is None
  worker, = [one for one in job.tasks if one.task == "worker 1"]
  assert (worker.state, worker.steps, worker.global_step) == ("training", 5, 9)
  assert status_socket.ask_here([address]) is None
  assert list(temporary.iterdir()) == []


def test_a_task_of_the_same_address_in_another_network_is_not_asked(temporary, address):
  with status_socket.answer_here(address):
    place, = temporary.glob("*/place")
    place.write_text(address + " net:[1]")
    assert status_socket.ask_here([address]) is None


def test_the_command_needs_no_tensorflow(temporary, address):
  with status_socket.answer_here(address):
    done = subprocess.run(
      [sys.executable, "-c", ASKS, "--ps_hosts=" + address, "--log_format=json"],
      stdout=subprocess.PIPE, check=True, env=dict(os.environ, TMPDIR=str(temporary)))
  answer, imported = done.stdout.decode().splitlines()
  assert imported == "0 []"
  assert "here" in [job["container"] for job in json.loads(answer)["jobs"]]


def test_a_task_that_cannot_look_leaves_it_to_the_other_process(temporary, monkeypatch):
  monkeypatch.setattr(status_socket, "_LIMIT", 0.5)
  address, = harness.addresses(1)
  with status_socket.answer_here(address):
    assert status_socket.ask_here([address]) is None


def test_one_who_sends_a_byte_now_and_then_holds_nobody_up(temporary, address):
  is_over, closed = threading.Event(), threading.Event()

  def send(path):
    with socket.socket(socket.AF_UNIX) as stranger:
      stranger.connect(path)
      while not is_over.wait(0.05):
        try:
          stranger.sendall(b"x")
        except OSError:  # it is left
          closed.set()
          return

  with status_socket.answer_here(address):
    folder, = temporary.iterdir()
    with status_socket._short_path(str(folder)) as path:
      thread = threading.Thread(target=send, args=(path,))
      thread.start()
      try:
        assert closed.wait(harness.LIMIT)
      finally:
        is_over.set()
        thread.join()
    assert status_socket.ask_here([address]) is not None


def test_an_endless_question_is_left(temporary, address):
  with status_socket.answer_here(address), socket.socket(socket.AF_UNIX) as stranger:
    folder, = temporary.iterdir()
    with status_socket._short_path(str(folder)) as path:
      stranger.connect(path)
    stranger.settimeout(harness.LIMIT)
    with pytest.raises(ConnectionError):
      for _ in range(100):
        stranger.sendall(b"x" * status_socket._LONGEST)
    assert status_socket.ask_here([address]) is not None


def test_a_task_runs_where_no_temporary_directory_can_be_written(monkeypatch, address):
  monkeypatch.setattr(tempfile, "tempdir", "/no/such")
  with status_socket.answer_here(address):
    assert status_socket.ask_here([address]) is None
