"""Each rope alone; all of them together are tested with a launcher, in local_test.py."""
from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.launch import sample_tasks

WATCH = """
import subprocess, sys, time
from tf1ps.launch import lifeline
lifeline.watch(int(sys.argv[1]))
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""

# A parent that forks a child; the child stops itself, then the parent kills itself.
DIE = """
import os, signal, sys
from tf1ps.launch import lifeline
parent = os.getpid()
pid = os.fork()
if pid == 0:
  lifeline.die_with_parent(parent)
  os.kill(os.getpid(), signal.SIGSTOP)
  os._exit(0)
os.waitpid(pid, os.WUNTRACED)
print(pid, flush=True)
os.kill(parent, signal.SIGKILL)
"""

# The parent is gone before the child asks for its signal.
TOO_LATE = """
import os, signal, sys, time
from tf1ps.launch import lifeline
parent = os.getpid()
pid = os.fork()
if pid == 0:
  while os.getppid() == parent:
    time.sleep(0.001)
  lifeline.die_with_parent(parent)
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
