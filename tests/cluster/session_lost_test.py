"""Sessions whose ps is gone, and whose process is told to leave: beside stock's, which hang."""
from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from tests import cluster_tasks, harness, session_tasks
from tf1ps.compat import TIMING


def lose_ps(start, number):
  """Has a client of each kind lose its ps; returns what came of its run, close, and run again.

  Returns:
    For stock and for ours, a list of (what came of a call, seconds).
  """
  clients = []
  for kind in ("stock", "ours"):
    jobs = {job: harness.addresses(1) for job in ("ps", "worker")}
    ps = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    ps.wait_for("up")
    clients.append(start(kind, session_tasks.lose_ps, kind, jobs, ps.pid, number))
  ends = []
  for client in clients:
    assert client.wait() == 0, client.output
    assert "counted 1" in client.lines
    words = [line.split() for line in client.lines if line.startswith("ended: ")]
    ends.append([(word, float(seconds)) for _, word, seconds in words])
  return ends


def test_close_is_bounded_where_the_ps_is_dead(start):
  stock, ours = lose_ps(start, signal.SIGKILL)
  assert stock[0][0] == ours[0][0]
  assert ours[0][0] in ("UnavailableError", "hangs")  # on 2.x and on 1.15
  assert stock[1][0] == "hangs"
  at_least = 1.0 if ours[0][0] == "hangs" else TIMING.aborted_close_limit  # 1.0: its close_limit
  assert ours[1][0] == "returned" and at_least <= ours[1][1]
  assert ours[2][0] == "CancelledError"


def test_abort_and_close_where_the_ps_stands_still(start):
  stock, ours = lose_ps(start, signal.SIGSTOP)
  assert [how for how, _ in stock[:2]] == ["hangs", "hangs"]
  assert [how for how, _ in ours] == ["KeyError", "returned", "KeyError"]


def test_keyboard_interrupt_arrives_in_a_blocked_run(start):
  task = start("ours", session_tasks.block, "ours")
  task.wait_for("blocked")
  task.signal(signal.SIGINT)
  task.wait_for("interrupted")
  assert task.wait() == 0, task.output
  assert task.output.splitlines()[-5:] == [
      "blocked", "interrupted", "then 2 1", "then" + " 2" * 20, "taken 7"]


def test_keyboard_interrupt_does_not_arrive_in_stocks(start):
  task = start("stock", session_tasks.block, "stock")
  task.wait_for("blocked")
  task.signal(signal.SIGINT)
  with pytest.raises(AssertionError, match="no 'interrupted' within 1 s"):
    task.wait_for("interrupted", 1)
  assert task.is_running


@contextlib.contextmanager
def leaving_interpreter(kind, start, output):
  """An interpreter that exits while its sessions are open, broken and blocked."""
  jobs = {job: harness.addresses(1) for job in ("ps", "worker")}
  ps = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  ps.wait_for("up")
  program = ("import json, sys; from tests import session_tasks; "
             "session_tasks.exit_with_abandoned_sessions(*json.loads(sys.argv[1]))")
  with open(str(output), "wb") as file:
    process = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps([kind, jobs, ps.pid])], stdout=file, stderr=file)
  try:
    yield process
  finally:
    process.kill()
    process.wait()


@pytest.mark.slow
def test_an_interpreter_with_abandoned_sessions_exits(start, tmp_path):
  with leaving_interpreter("stock", start, tmp_path / "stock") as stock, \
      leaving_interpreter("ours", start, tmp_path / "ours") as ours:
    assert ours.wait(60) == 7, (tmp_path / "ours").read_text()
    harness.wait_until(lambda: "leaving" in (tmp_path / "stock").read_text())
    with pytest.raises(subprocess.TimeoutExpired):  # where stock's never gets that far
      stock.wait(1.5)
