"""The worlds: what a task sees there, and how it ends."""
from __future__ import annotations

import json
import os
import signal
import socket

import pytest

from tests import harness, needs
from tests.survival import matrix_tasks
from tools.chaos import worlds

pytestmark = pytest.mark.any_tensorflow
TASKS = ("worker 0", "worker 1")


@pytest.fixture
def begin(start, tmp_path):
  """Starts the tasks of a world: `begin(name)` returns it, the tasks, and what each sees."""
  directory = tmp_path / "model"
  directory.mkdir()
  (directory / "checkpoint").write_text("")

  def begin_tasks(name, disk=""):
    try:
      made = worlds.Made(name, str(directory), str(tmp_path), TASKS)
    except worlds.WorldError as error:
      needs.skip("namespaces", error)
    tasks = [start(task, matrix_tasks.show_world, made.place(task, task == TASKS[0], disk),
                   str(directory)) for task in TASKS]
    return made, tasks, [json.loads(task.wait_for("sees").partition(" ")[2]) for task in tasks]

  return begin_tasks


@pytest.mark.parametrize("name", ["pids", "hosts", "disks"])
def test_what_the_tasks_share(begin, name):
  _, tasks, (chief, other) = begin(name)
  hosts = ["worker-0-1", "worker-1-1"] if name == "hosts" else [socket.gethostname()] * 2
  assert chief == [1, "1", hosts[0], ["checkpoint"], tasks[0].pid]
  assert other == [
    1, "1", hosts[1], [] if name == "disks" else ["checkpoint"], tasks[1].pid]


def test_a_task_may_have_another_disk(begin, tmp_path):
  (tmp_path / "other").mkdir()
  (tmp_path / "other" / "else").write_text("")
  _, _, seen = begin("disks", str(tmp_path / "other"))
  assert [each[3] for each in seen] == [["else"]] * 2


def test_one_world_is_that_of_the_run(begin):
  made, tasks, seen = begin("one")
  assert [each[0] for each in seen] == [each[4] for each in seen] == [task.pid for task in tasks]
  assert [made.process(task.pid) for task in tasks] == [task.pid for task in tasks]


def test_the_started_process_ends_as_the_task_does(begin, tmp_path):
  made, (first, second), _ = begin("pids")
  task = made.process(first.pid)
  assert task != first.pid and os.path.exists("/proc/%d" % task)
  harness.signal_process(task, signal.SIGKILL)
  assert first.wait() == -signal.SIGKILL
  (tmp_path / "model" / "end").write_text("")
  assert second.wait() == 3


def test_a_task_ends_with_the_started_process(begin):
  made, (first, _), _ = begin("pids")
  task = made.process(first.pid)
  first.kill()
  harness.wait_until(lambda: not os.path.exists("/proc/%d" % task), what="the task's end")
