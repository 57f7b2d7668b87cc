from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from tf1ps.checkpoint import CheckpointError
from tf1ps.session import run_directory
from tf1ps.state import RUN_ENDED, RUN_RUNNING, RunFile

ELSEWHERE = {"run": "theirs", "state": RUN_RUNNING, "global_step": 3, "time": 0.0,
             "host": "elsewhere", "pid": 7}


@pytest.fixture
def folder(tmp_path, set_timing):
  """Writes another job's status; `folder.own` is this job's access."""
  set_timing(run_directory, status_interval=0.2, poll_interval=0.01)

  class Folder:
    own = run_directory.RunDirectory(str(tmp_path), 30.0)

    def theirs(self, **fields):
      part = tmp_path / "part"
      part.write_text(json.dumps(dict(ELSEWHERE, **fields)))
      part.replace(tmp_path / RunFile.NAME)

    def read(self):
      return RunFile(str(tmp_path)).read()

    def await_free(self, *ours):
      self.own.await_free(ours.__contains__, lambda: None)

  return Folder()


def test_a_chief_that_is_refused_does_not_write_into_the_others_file(folder):
  folder.own.open()
  folder.theirs()
  folder.own.write_failure("", 3, "refused")
  assert (folder.read().run, folder.read().state) == ("theirs", RUN_RUNNING)


def ended_process():
  process = subprocess.Popen([sys.executable, "-S", "-c", ""])
  process.wait()
  return process.pid


@pytest.mark.parametrize("left", [
  None, {"state": RUN_ENDED}, {"host": socket.gethostname(), "pid": os.getpid()},
  {"host": socket.gethostname(), "pid": 0}], ids=["nothing", "ended", "own", "dead"])
def test_the_run_is_announced_at_once_where_nobody_can_live(folder, left):
  if left is not None:
    folder.theirs(**dict(left, pid=ended_process()) if left.get("pid") == 0 else left)
  folder.own.open()
  found = folder.read()
  assert (found.state, found.host, found.pid) == (RUN_RUNNING, socket.gethostname(), os.getpid())
  assert found.run == folder.own.run_id
  is_the_old_one = left is not None and "state" not in left
  assert (found.run == "theirs", found.global_step) == (
    is_the_old_one, 3 if is_the_old_one else -1)
  folder.await_free()


def test_a_run_that_may_live_is_watched_and_taken_over_when_it_is_still(folder):
  folder.theirs()
  folder.own.open()
  folder.own.beat("", -1)
  assert folder.read().host == "elsewhere"
  folder.await_free()
  folder.own.beat("", -1)
  assert (folder.read().pid, folder.read().run) == (os.getpid(), "theirs")


def test_a_living_run_is_refused_and_its_file_stays(folder):
  folder.theirs()
  folder.own.open()
  assert folder.read().host == "elsewhere"
  folder.theirs(time=1.0)
  with pytest.raises(run_directory.DirectoryInUseError, match=r"process 7 on elsewhere.*--check"):
    folder.await_free()
  folder.own.beat("", -1)
  assert folder.read().host == "elsewhere"


def test_a_run_that_ends_meanwhile_leaves_the_directory_free(folder):
  folder.theirs()
  folder.own.open()
  folder.theirs(state=RUN_ENDED)
  waits = threading.Thread(target=folder.await_free, daemon=True)
  waits.start()
  waits.join(30.0)
  assert not waits.is_alive()


def test_two_that_start_at_once(folder):
  folder.own.open()
  folder.theirs()
  with pytest.raises(run_directory.DirectoryInUseError):
    folder.await_free()


def test_a_run_that_the_ps_know_is_ones_own(folder):
  folder.theirs()
  folder.own.open()
  folder.await_free("theirs")
  folder.own.beat("theirs", 4)
  assert folder.read().pid == os.getpid()


def test_a_directory_that_cannot_be_written_is_named():
  with pytest.raises(CheckpointError, match="checkpoint_dir /sys cannot be written: [^/]*$"):
    run_directory.RunDirectory("/sys", 30.0).open()


def test_what_a_killed_chief_has_left_is_removed(folder, tmp_path):
  (tmp_path / (RunFile.NAME + ".7.tmp")).write_text("{")
  (tmp_path / "other.7.tmp").write_text("")
  folder.own.open()
  folder.await_free()
  assert sorted(os.listdir(str(tmp_path))) == ["other.7.tmp", RunFile.NAME]
