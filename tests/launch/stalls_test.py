from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.launch import sample_tasks
from tf1ps.launch import stalls
from tf1ps.launch.fork_server import TaskProcess

PROCESSES = [TaskProcess("ps 0", os.getpid(), 0), TaskProcess("worker 10", os.getpid(), 0)]


def test_lines_that_come_within_the_pause_make_one_table(set_timing):
  set_timing(stalls, stalls_pause=0.0)
  found = stalls.Stalls()
  found.note("worker 10", "13:05:59 progress: step 41")
  assert found.left is None and found.take(PROCESSES) == []
  found.note("worker 10", "13:05:59 stalled: /job:worker/task:10 has made no step for 600 s: it "
             "waits for a save of the checkpoint")
  found.note("ps 0", "stalled: nobody comes")
  assert found.left == 0.0
  assert found.take(PROCESSES) == [
    "tf1ps-local: stalled tasks:",
    "tf1ps-local:   ps 0       nobody comes",
    "tf1ps-local:   worker 10  made no step for 600 s: it waits for a save of the checkpoint"]
  assert found.left is None and found.take(PROCESSES) == []


def test_a_table_waits_for_its_pause(set_timing):
  set_timing(stalls, stalls_pause=60.0)
  found = stalls.Stalls()
  found.note("ps 0", "stalled: nobody comes")
  assert 0.0 < found.left <= 60.0 and found.take(PROCESSES) == []


def test_a_task_that_a_signal_has_stopped_is_in_the_table(set_timing):
  set_timing(stalls, stalls_pause=0.0)
  with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
    child.send_signal(signal.SIGSTOP)
    assert sample_tasks.wait_until(lambda: sample_tasks.is_stopped(child.pid))
    found = stalls.Stalls()
    found.note("worker 10", "stalled: waits")
    lines = found.take([TaskProcess("ps 0", child.pid, 0), *PROCESSES[1:]])
    child.kill()
  assert lines[1:] == [
    "tf1ps-local:   ps 0       is stopped by a signal (process %d)" % child.pid,
    "tf1ps-local:   worker 10  waits"]
