from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys

import pytest

from tests.launch import sample_tasks
from tf1ps.launch import fork_server
from tf1ps.launch.fork_server import LocalTask


@pytest.fixture(scope="module")
def server():
  with pytest.MonkeyPatch.context() as patch:
    patch.delenv("PYTHONUNBUFFERED", raising=False)  # It would unbuffer C's stdout, too.
    with fork_server.ForkServer(["numpy.random"]) as started:
      yield started


def run(server, function, *args, **kwargs):
  """Runs a task to its end; returns (exit code, output)."""
  process = server.start_task(LocalTask("worker 0", function, args, **kwargs))
  output = sample_tasks.read_output(process)
  return sample_tasks.wait_exit(server, process), output.decode("utf-8")


@pytest.mark.parametrize("value, code, output", [
    (None, 0, ""), (0, 0, ""), (98, 98, ""), (True, 1, ""),
    (256, 1, "exit code of 0 to 255, got 256"), ("0", 1, "TypeError")])
def test_the_result_is_the_exit_code(server, value, code, output):
  result = run(server, sample_tasks.answer, value)
  assert result[0] == code
  assert output in result[1]


@pytest.mark.parametrize("kind, code, output", [
    ("exit", 0, ""), ("exit 7", 7, ""), ("exit text", 1, "nothing to do\n"),
    ("kill", -signal.SIGKILL, "")])
def test_other_ways_to_leave(server, kind, code, output):
  assert run(server, sample_tasks.leave_by, kind) == (code, output)


def test_an_exception_leaves_its_traceback(server):
  code, output = run(server, sample_tasks.leave_by, "raise")
  assert code == 1
  assert output.startswith("Traceback") and output.endswith("ValueError: no such digit\n")
  assert "in leave_by" in output


def test_all_output_arrives_in_order(server):
  assert run(server, sample_tasks.write_to_both_streams, 4) == (
      0, "hello from 4\nGrüße\ndescriptor\nfrom C")


def test_its_title_is_what_ps_and_top_show(server):
  pytest.importorskip("setproctitle")
  process = server.start_task(LocalTask(
    "ps 0", sample_tasks.look_like, (), {"TF1PS_TITLE": "tf1ps ps 0 digits"}))
  with os.fdopen(process.output) as output:
    assert output.read().splitlines() == [
      "tf1ps ps 0 digits", "tf1ps-local: forks the tasks", "True False"]


def test_a_thread_does_not_hold_it_up(server):
  assert run(server, sample_tasks.leave_a_thread_running) == (3, "")


def test_a_process_of_its_own(server, tmp_path, monkeypatch):
  monkeypatch.setenv("LAUNCH_GONE", "yes")  # The server is older: its tasks must not see this.
  found = []
  for index in range(2):
    path = str(tmp_path / str(index))
    assert run(server, sample_tasks.tell, path, env={
        "LAUNCH_SET": str(index), "LAUNCH_GONE": None}) == (0, "")
    found.append(ast.literal_eval(sample_tasks.read_when_there(path)))
  for index, told in enumerate(found):
    assert told["env"] == {"LAUNCH_SET": str(index), "LAUNCH_GONE": None}
    assert told["group"] == told["pid"] and told["ppid"] == server.pid
    assert told["stdin"] == "" and told["blocked"] == [] and told["sigint"]
    assert len(told["pipes"]) == 2  # Its output, and the pipe of the launcher.
  assert found[0]["draw"] != found[1]["draw"]


# The end with the launcher: each means alone. local_test.py has all of them together.


WATCH = """
import subprocess, sys, time
from tf1ps.launch import task_main
task_main.watch_launcher(int(sys.argv[1]))
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""

# A parent that forks a child; the child stops itself, then the parent kills itself.
DIE = """
import os, signal, sys
from tf1ps.launch import task_main
parent = os.getpid()
pid = os.fork()
if pid == 0:
  task_main.die_with_parent(parent)
  os.kill(os.getpid(), signal.SIGSTOP)
  os._exit(0)
os.waitpid(pid, os.WUNTRACED)
print(pid, flush=True)
os.kill(parent, signal.SIGKILL)
"""

# The parent has ended before the child asks for its signal.
TOO_LATE = """
import os, signal, sys, time
from tf1ps.launch import task_main
parent = os.getpid()
pid = os.fork()
if pid == 0:
  while os.getppid() == parent:
    time.sleep(0.001)
  task_main.die_with_parent(parent)
  print("lives", flush=True)
  os._exit(0)
print(pid, flush=True)
"""


def test_a_closed_pipe_kills_the_group():
  read_end, write_end = os.pipe()
  # Another process that has the read end as well changes nothing.
  with subprocess.Popen(["sleep", "60"], pass_fds=(read_end,)) as other, subprocess.Popen(
      [sys.executable, "-c", WATCH, str(read_end)], pass_fds=(read_end,), start_new_session=True,
      stdout=subprocess.PIPE) as process:
    child = int(process.stdout.readline())
    assert process.poll() is None
    os.close(write_end)
    assert process.wait(60) == -signal.SIGKILL
    assert sample_tasks.wait_until(lambda: not sample_tasks.lives(child))
    assert other.poll() is None
    other.kill()
  os.close(read_end)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's part: Linux only")
def test_a_stopped_process_dies_with_its_parent():
  process = subprocess.run([sys.executable, "-c", DIE], stdout=subprocess.PIPE, timeout=60)
  assert process.returncode == -signal.SIGKILL
  child = int(process.stdout)
  assert sample_tasks.wait_until(lambda: not sample_tasks.lives(child))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's part: Linux only")
def test_a_parent_that_is_gone_already_counts():
  # Both hold the pipe: its end says that both have ended.
  output = subprocess.run([sys.executable, "-c", TOO_LATE], stdout=subprocess.PIPE,
                          timeout=60).stdout.decode().split()
  assert len(output) == 1  # It did not come to say that it lives.
  assert sample_tasks.wait_until(lambda: not sample_tasks.lives(int(output[0])))
