from __future__ import annotations

import json
import os
import threading
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, needs
from tests.survival import matrix_job
from tf1ps.cluster.description import Task
from tf1ps.state import control, run
from tf1ps.state.run_status import RUN_ENDED, RUN_RUNNING

RECORD = run.RunRecord(
    id="0123456789abcdef", initialised=True, ended=False, failed=False,
    jobs={"ps": {"0": "a:1"}, "worker": {"1": "b:2"}},
    signature=[["w", [3, 4], "float32", "/job:ps/task:0", "resource"]], writes=2)


@pytest.fixture(scope="module")
def table(forks):
  jobs = {"ps": harness.addresses(1)}
  server = forks.start("ps", cluster_tasks.serve, jobs, "ps", 0)
  server.wait_for("up")
  task = Task("ps", 0, jobs["ps"][0])
  table = control.ControlTable("grpc://" + task.address, task, task)
  yield table
  table.close()
  server.kill()


def test_what_is_written_is_found_in_its_container(table):
  assert run.find_run(table.read(), "") is None
  run.write_run(table, "", RECORD)
  run.write_run(table, "jobs/a", RECORD._replace(ended=True, failed=True))
  records = table.read()
  assert run.find_run(records, "") == RECORD
  assert run.find_run(records, "jobs/a") == RECORD._replace(ended=True, failed=True)
  assert run.find_run(records, "jobs") is None
  run.write_run(table, "", RECORD._replace(writes=3))
  assert run.find_run(table.read(), "").writes == 3


def test_a_record_from_before_some_time_is_left_out(table):
  run.write_run(table, "old", RECORD)
  harness.wait_until(lambda: run.find_run(table.read(), "old", max_age=0.2) is None)
  assert run.find_run(table.read(), "old", max_age=60.0) == RECORD
  assert run.find_run(table.read(), "old") == RECORD


def test_each_id_is_new():
  ids = {run.new_run_id() for _ in range(100)}
  assert len(ids) == 100 and all(len(i) == 16 and int(i, 16) >= 0 for i in ids)


def test_the_file_says_what_was_written(tmp_path):
  before = time.time()
  file = run.RunFile(str(tmp_path / "new" / "directory"))
  assert file.read() is None
  file.write("r", RUN_RUNNING, np.int64(12))
  status = run.RunFile(str(tmp_path / "new" / "directory")).read()
  assert status[:3] == ("r", "running", 12) and before <= status.time <= time.time()
  file.write("r", RUN_ENDED, 13)
  assert file.read()[:3] == ("r", "ended", 13)
  assert os.listdir(str(tmp_path / "new" / "directory")) == ["tf1ps-run.json"]


@pytest.mark.slow
def test_a_reader_finds_the_old_status_or_the_new_one(tmp_path):
  file, stop, found = run.RunFile(str(tmp_path)), threading.Event(), []
  file.write("r", RUN_RUNNING, 0)

  def read():
    while not stop.is_set():
      found.append(file.read())

  reader = threading.Thread(target=read)
  reader.start()
  for step in range(200):
    file.write("r", RUN_RUNNING, step)
  stop.set()
  reader.join()
  assert len(found) > 10 and None not in found
  assert [status.global_step for status in found] == sorted(s.global_step for s in found)


@pytest.mark.parametrize("content", [
    b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'{"run": "r"}', b'"r"',
    b'{"run": 5, "state": "running", "global_step": 1, "time": 0.0}',
  b'{"run": "r", "state": "running", "global_step": "1", "time": 0.0}',
  b'{"run": "r", "state": "running", "global_step": 1, "time": null}',
  b'{"run": "r", "state": "running", "global_step": 1, "time": 0.0, "process": 5}',
])
def test_a_file_that_cannot_be_read_is_none(tmp_path, content):
  (tmp_path / run.RunFile.NAME).write_bytes(content)
  file = run.RunFile(str(tmp_path))
  assert file.read() is None
  file.write("r", RUN_RUNNING, 1)
  assert file.read().run == "r"


def test_a_file_of_a_later_release_may_say_more(tmp_path):
  (tmp_path / run.RunFile.NAME).write_text(json.dumps(
    {"run": "r", "state": "running", "global_step": 1, "time": 0.0, "more": 1}))
  assert run.RunFile(str(tmp_path)).read() == run.RunStatus("r", run.RUN_RUNNING, 1, 0.0)


@pytest.mark.parametrize("state, asked, expected", [
  (RUN_ENDED, dict(goal="--steps=5"), True), (RUN_ENDED, dict(goal="--steps=6"), False),
  (RUN_ENDED, dict(last_step=7), True), (RUN_ENDED, dict(last_step=8), False),
  (RUN_ENDED, dict(goal="", last_step=None), False),
  (RUN_RUNNING, dict(goal="--steps=5"), False), (RUN_RUNNING, dict(last_step=7), False)])
def test_a_run_has_ended_if_the_same_was_asked_for(tmp_path, state, asked, expected):
  file = run.RunFile(str(tmp_path))
  assert file.has_ended(**asked) is False
  file.write("r", state, 7, goal="--steps=5")
  assert file.has_ended(**asked) is expected


def test_a_directory_in_the_files_place_is_none(tmp_path):
  (tmp_path / run.RunFile.NAME).mkdir()
  assert run.RunFile(str(tmp_path)).read() is None


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(tf.errors.OpError):
    run.RunFile(str(tmp_path / "file" / "directory")).write("r", RUN_RUNNING, 1)


def test_a_run_on_a_full_disk_is_alive(tmp_path, caplog):
  try:
    disk = matrix_job.Disk(tmp_path)
  except matrix_job.NotPermitted as error:
    needs.skip("mounts", error)
  try:
    file = run.RunFile(disk.folder)
    file.write("r", RUN_RUNNING, 9, goal="steps=12")
    disk.fill()
    for step in (10, 11):
      assert file.touch("r", step, 0.0) is None
      status = run.RunFile(disk.folder).read()
      assert status[:3] == ("r", RUN_RUNNING, step) and status.goal == "steps=12"
    with pytest.raises(tf.errors.OpError):
      file.write("r", RUN_ENDED, 11)
    assert not caplog.records
  finally:
    disk.close()
