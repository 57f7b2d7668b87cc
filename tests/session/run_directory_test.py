from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import types

import pytest

from tests import harness
from tf1ps.checkpoint import CheckpointError
from tf1ps.compat import own_identity
from tf1ps.session import run_directory
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile

ELSEWHERE = {"run": "theirs", "state": RUN_RUNNING, "global_step": 3, "time": 0.0,
             "host": "elsewhere", "pid": 7}


@pytest.fixture
def folder(tmp_path, set_timing, monkeypatch):
  """Writes another job's status; `folder.own` is this job's access.

  The time of this access passes only where it waits.
  """
  set_timing(run_directory, status_interval=0.2, poll_interval=0.01)
  now = [100.0]

  def sleep(seconds):
    now[0] += seconds

  monkeypatch.setattr(run_directory, "time", types.SimpleNamespace(
    monotonic=lambda: now[0], sleep=sleep))

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
  return subprocess.check_output([sys.executable, "-c", (
    "from tf1ps.compat import own_identity; print(own_identity())")], text=True).strip()


@pytest.mark.parametrize("left, process", [
  (None, None), ({"state": RUN_ENDED}, lambda: ""), ({}, own_identity), ({}, ended_process)],
  ids=["nothing", "ended", "own", "dead"])
def test_the_run_is_announced_at_once_where_nobody_can_live(folder, left, process):
  if left is not None:
    folder.theirs(process=process(), **left)
  folder.own.open()
  found = folder.read()
  assert (found.state, found.host, found.pid) == (RUN_RUNNING, socket.gethostname(), os.getpid())
  assert found.run == folder.own.run_id
  is_the_old_one = left is not None and "state" not in left
  assert (found.run == "theirs", found.global_step) == (
    is_the_old_one, 3 if is_the_old_one else -1)
  folder.await_free()


@pytest.mark.parametrize("where", ["another host", "another container on the network of the host"])
def test_a_run_that_may_live_is_watched_and_taken_over_when_it_is_still(folder, where):
  process = ended_process()
  if where == "another host":
    folder.theirs(process=process.replace(socket.gethostname(), "elsewhere"))
  else:  # there, this id may be the chief's; here no process has it
    folder.theirs(process=process.replace(process.split("-")[2], "4026999999"),
                  host=socket.gethostname(), pid=int(process.split("-")[0]))
  folder.own.open()
  folder.own.beat("", -1)
  assert folder.read().pid != os.getpid()
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


def test_a_chief_that_comes_back_from_a_pause_leaves_the_directory_to_its_new_job(folder):
  folder.own.open()
  folder.theirs(run="new")
  with pytest.raises(run_directory.DirectoryInUseError, match="process 7 on elsewhere"):
    harness.wait_until(lambda: folder.own.beat("", -1))
  assert folder.read().run == "new"


def test_a_run_that_ends_meanwhile_leaves_the_directory_free(folder):
  folder.theirs()
  folder.own.open()
  folder.theirs(state=RUN_ENDED)
  waits = threading.Thread(target=folder.await_free, daemon=True)
  waits.start()
  waits.join(harness.LIMIT)
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


@pytest.mark.parametrize("left, goal, expected", [
  (dict(goal="--steps=5"), "--steps=5", True),
  (dict(goal="--steps=5"), "--steps=9", False),
  ({}, "--steps=5", False),
  (dict(goal="--steps=5", state=RUN_FAILED, may_resume=True), "--steps=5", True),
  (dict(goal="--steps=5", state=RUN_FAILED), "--steps=5", False)])
def test_a_run_that_was_cut_off_behind_its_last_checkpoint(folder, left, goal, expected):
  folder.theirs(host=socket.gethostname(), **left)
  folder.own.open()
  assert folder.own.has_trained(goal) is expected


def test_a_running_run_keeps_its_goal_until_the_next_write(folder):
  folder.own.open()
  for goal in ("--steps=5", ""):
    folder.own.write("r", RUN_RUNNING, 5, goal=goal)

    def is_written_again():
      folder.own.beat("r", 6)
      return folder.read().global_step == 6

    harness.wait_until(is_written_again)
    assert folder.read().goal == goal


def test_one_open_session_of_a_process_has_the_directory(tmp_path):
  (tmp_path / "link").symlink_to(tmp_path)
  first, second = (run_directory.RunDirectory(str(path), 30.0)
                   for path in (tmp_path, tmp_path / "link"))
  first.claim()
  first.claim()
  with pytest.raises(run_directory.DirectoryInUseError, match="another session of this process "):
    second.claim()
  second.give_back()  # it has none
  with pytest.raises(run_directory.DirectoryInUseError, match="link and is still open. Close "):
    second.claim()
  first.give_back()
  second.claim()
  second.give_back()


def test_a_directory_that_cannot_be_written_is_named():
  with pytest.raises(CheckpointError, match="checkpoint_dir /sys cannot be written: [^/]*$"):
    run_directory.RunDirectory("/sys", 30.0).open()


def test_what_a_killed_chief_has_left_is_removed(folder, tmp_path):
  (tmp_path / (RunFile.NAME + ".7.tmp")).write_text("{")
  (tmp_path / "other.7.tmp").write_text("")
  folder.own.open()
  folder.await_free()
  assert sorted(os.listdir(str(tmp_path))) == ["other.7.tmp", RunFile.NAME]


@pytest.mark.parametrize("left", ["{", None])
def test_where_nothing_says_who_lives_the_chief_looks_first(folder, tmp_path, caplog, left):
  (tmp_path / "checkpoint").write_text("")
  if left is not None:
    (tmp_path / RunFile.NAME).write_text(left)
  with caplog.at_level("INFO", "tf1ps"):
    folder.own.open()
  assert folder.read() is None
  (record,) = [one.getMessage() for one in caplog.records if "0.3 s" in one.getMessage()]
  assert str(tmp_path / RunFile.NAME) in record
  folder.await_free()
  folder.own.beat("", -1)
  assert folder.read().pid == os.getpid()


@pytest.mark.parametrize("left", ["{", None])
def test_a_living_chief_whose_file_was_taken_away_keeps_its_directory(folder, tmp_path, left):
  (tmp_path / "checkpoint").write_text("")
  if left is not None:
    (tmp_path / RunFile.NAME).write_text(left)
  folder.own.open()
  assert folder.read() is None  # else the living chief would find that another one is there
  folder.theirs()
  with pytest.raises(run_directory.DirectoryInUseError, match="process 7 on elsewhere"):
    folder.await_free()
  assert folder.read().host == "elsewhere"


def test_a_file_of_another_user_is_refused(folder, monkeypatch):
  folder.theirs()
  monkeypatch.setattr(run_directory, "is_hidden", lambda path: True)  # root may read everything
  monkeypatch.setattr(RunFile, "read", lambda self: None)
  with pytest.raises(CheckpointError, match="this user must not read .*/tf1ps-run.json, so a job "):
    folder.own.open()
