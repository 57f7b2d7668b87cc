"""How the tasks of one start end, seen through a launcher in a process of its own."""
from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests.launch import sample_tasks

LAUNCHER = str(pathlib.Path(__file__).with_name("launcher_program.py"))


@contextlib.contextmanager
def launcher(*arguments):
  """Starts a launcher with these tasks; kills it at the end."""
  process = subprocess.Popen([sys.executable, LAUNCHER] + list(arguments), start_new_session=True,
                             stdout=subprocess.PIPE, universal_newlines=True)
  with process:
    try:
      yield process
    finally:
      process.kill()


def parent_of(pid):
  return int(pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[1])


def read_pids(folder, *names):
  return [int(pid) for name in names
          for pid in sample_tasks.read_when_there(folder / name).split()]


def all_gone(pids):
  return not any(map(sample_tasks.lives, pids))


def test_a_killed_launcher_leaves_nothing(tmp_path):
  with launcher("ps 0:stay_deaf:%s" % (tmp_path / "deaf"),
                "worker 0:stay_deaf:%s" % (tmp_path / "stopped"),
                "worker 1:start_child:%s" % (tmp_path / "child")) as process:
    pids = read_pids(tmp_path, "deaf", "stopped", "child")
    pids.append(parent_of(pids[0]))
    for pid in pids[1:3]:
      os.kill(pid, signal.SIGSTOP)
      assert sample_tasks.wait_until(lambda pid=pid: sample_tasks.is_stopped(pid))
    process.kill()
    assert sample_tasks.wait_until(lambda: all_gone(pids))


@pytest.mark.parametrize("killed", ["launcher first", "both at once"])
def test_a_killed_launcher_leaves_nothing_even_with_a_stopped_fork_server(tmp_path, killed):
  with launcher("ps 0:stay_deaf:%s" % (tmp_path / "deaf"),
                "worker 0:stay_deaf:%s" % (tmp_path / "stopped")) as process:
    pids = read_pids(tmp_path, "deaf", "stopped")
    pids.append(parent_of(pids[0]))
    for pid in pids[1:]:
      os.kill(pid, signal.SIGSTOP)
      assert sample_tasks.wait_until(lambda pid=pid: sample_tasks.is_stopped(pid))
    process.kill()
    if killed == "both at once":
      os.kill(pids[2], signal.SIGKILL)
    assert sample_tasks.wait_until(lambda: all_gone(pids))


@pytest.mark.parametrize("number, code", [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_launcher_ends_during_the_imports(tmp_path, number, code):
  (tmp_path / "slow_module.py").write_text(
      "import os, threading\nfrom tests.launch import sample_tasks\n"
      "sample_tasks.write_whole(%r, os.getpid())\n"
      "threading.Event().wait(60)\n" % str(tmp_path / "server"))
  environ = dict(os.environ)
  environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environ["PYTHONPATH"]])
  process = subprocess.Popen([sys.executable, LAUNCHER, "slow_module", "worker 0:answer:"],
                             env=environ, stdout=subprocess.PIPE)
  with process:
    server, = read_pids(tmp_path, "server")
    process.send_signal(number)
    assert process.wait(60) == code
    assert sample_tasks.wait_until(lambda: all_gone([server]))


@pytest.mark.parametrize("number, heard", [
    (signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM),
    (signal.SIGHUP, signal.SIGTERM)])
def test_a_signal_reaches_workers_first_and_ps_last(tmp_path, number, heard):
  names = ["ps 0", "worker 0", "worker 1", "evaluator 0"]
  tasks = ["%s:note_signal:%s,0.2" % (name, tmp_path / name) for name in names]
  # A worker leaves when the other one has heard as well: one after the other they never would.
  for number_of, other in ((1, 2), (2, 1)):
    tasks[number_of] += ",0,%s" % (tmp_path / names[other])
  with launcher(*tasks) as process:
    read_pids(tmp_path, *[name + ".pid" for name in names])
    os.killpg(process.pid, number)  # As a terminal does: the launcher's group, and no task.
    assert process.wait(60) == 128 + number
    last = process.stdout.read().splitlines()[-1]
  notes = {name: [float(word) for word in (tmp_path / name).read_text().split()] for name in names}
  assert all(note[0] == heard for note in notes.values())
  workers_left = max(notes["worker 0"][2], notes["worker 1"][2])
  assert workers_left <= min(notes["ps 0"][1], notes["evaluator 0"][1])
  assert re.match(r"tf1ps-local: ended by %s, \d+\.\d s$" % signal.Signals(number).name, last)


def test_tasks_that_end_by_the_launchers_signal_did_not_fail(tmp_path):
  with launcher("ps 0:stay:%s" % (tmp_path / "ps"),
                "worker 0:stay:%s" % (tmp_path / "worker")) as process:
    pids = read_pids(tmp_path, "ps", "worker")
    process.send_signal(signal.SIGSTOP)  # It is to find the signal and the ends at once.
    assert sample_tasks.wait_until(lambda: sample_tasks.is_stopped(process.pid))
    for pid in pids:
      os.kill(pid, signal.SIGTERM)
    assert sample_tasks.wait_until(lambda: all_gone(pids))
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 143


def test_a_second_signal_kills_all_at_once(tmp_path):
  with launcher("ps 0:stay_deaf:%s" % (tmp_path / "ps"),
                "worker 0:stay_deaf:%s" % (tmp_path / "worker")) as process:
    pids = read_pids(tmp_path, "ps", "worker")
    process.send_signal(signal.SIGINT)
    while "ending the workers" not in process.stdout.readline():
      pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(12) == 130  # workers that are deaf have fifteen seconds
    assert process.stdout.read().splitlines()[0] == (
        "tf1ps-local: a second signal: killing what is left")
    assert all_gone(pids)


def test_two_launchers_do_not_disturb_each_other(tmp_path):
  with launcher("ps 0:wait_for:%s" % (tmp_path / "end"),
                "worker 0:stay:%s" % (tmp_path / "one")) as first:
    with launcher("ps 0:wait_for:%s" % (tmp_path / "end"),
                  "worker 0:wait_for:%s" % (tmp_path / "end")) as second:
      first_pid, = read_pids(tmp_path, "one")
      os.kill(first_pid, signal.SIGKILL)
      assert first.wait(60) == 1
      assert second.poll() is None
      (tmp_path / "end").write_text("")
      assert second.wait(60) == 0
