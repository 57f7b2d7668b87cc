from __future__ import annotations

import json
import os
import tempfile

import pytest

from tests import harness
from tests.cli import commands
from tf1ps.cli import running_jobs
from tf1ps.compat import own_identity
from tf1ps.state import RUN_ENDED, RUN_FAILED, RUN_RUNNING, RunFile

TWO = {"ps": ["127.0.0.1:1", "127.0.0.1:2"], "worker": ["127.0.0.1:3"]}


@pytest.fixture
def temporary(monkeypatch, tmp_path):
  """The system's temporary directory, in which no other job is."""
  folder = tmp_path / "temporary"
  folder.mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(folder))
  return folder


@pytest.mark.any_tensorflow
def test_a_job_is_found_while_it_runs(temporary, tmp_path):
  assert running_jobs.find_jobs() == []
  with running_jobs.announced("p.py", str(tmp_path / "new" / ".." / "c"), "") as job:
    assert running_jobs.find_jobs() == []  # it has no address yet
    job.write(TWO)
    found, = running_jobs.find_jobs()
    assert (found.program, found.pid, found.addresses) == ("p.py", os.getpid(), TWO["ps"])
    assert found.checkpoint_dir == running_jobs.locate(str(tmp_path / "c"))
    job.write(dict(TWO, ps=[]))  # the ports were taken; all-reduce
    with running_jobs.announced("q.py", "", "certs") as other:
      other.write(TWO)
      assert [one.addresses for one in running_jobs.find_jobs()] == [TWO["worker"], TWO["ps"]]
      assert str(running_jobs.find_jobs()[1]).startswith(
        "--ps_hosts=127.0.0.1:1 --tls_dir=certs  # q.py, process %d, since " % os.getpid())
  assert running_jobs.find_jobs() == [] == list(temporary.iterdir())


@pytest.mark.any_tensorflow
def test_the_job_of_a_launcher_that_was_killed_is_not_found(temporary):
  with running_jobs.announced("p.py", "", "") as job:
    job.write(TWO)
    folder, = temporary.iterdir()
    pid, start, rest = own_identity().split("-", 2)
    folder.rename(temporary / folder.name.replace(own_identity(), "%s-%d-%s" % (
      pid, int(start) - 1, rest)))
    assert running_jobs.find_jobs() == []


@pytest.mark.any_tensorflow
def test_a_job_runs_where_no_temporary_directory_can_be_written(monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", "/no/such")
  with running_jobs.announced("p.py", "", "") as job:
    job.write(TWO)
  assert running_jobs.find_jobs() == [] and not os.path.exists("job.json")


def test_the_run_of_a_directory(tmp_path):
  assert running_jobs.read_run(str(tmp_path)) is None
  for damaged in ("{", "[]", '{"state": "ended"}', '{"state": 5, "reason": "", "global_step": 1}'):
    (tmp_path / RunFile.NAME).write_text(damaged)
    assert running_jobs.read_run(str(tmp_path)) is None
  file = RunFile(str(tmp_path), "127.0.0.1:5")
  file.write("a", RUN_RUNNING, 3)
  assert running_jobs.read_run(str(tmp_path)) == file.read()
  assert running_jobs.read_run("file://%s" % tmp_path) == file.read()
  assert file.read().address == "127.0.0.1:5"


def test_a_run_that_has_ended_has_no_status(start, tmp_path):
  RunFile(str(tmp_path), "127.0.0.1:5").write("a", RUN_FAILED, 3, "no data")
  assert commands.run(start, "tf1ps-status", str(tmp_path)) == (
    1, ["tf1ps-status: the run in %s has failed at global step 3: no data" % tmp_path])
  RunFile(str(tmp_path), "127.0.0.1:5").write("a", RUN_FAILED, 3, "ended by signal 2")
  assert commands.run(start, "tf1ps-status", str(tmp_path)) == (
    1, ["tf1ps-status: the run in %s was stopped at global step 3 (ended by signal 2): the same "
        "command goes on from its last checkpoint" % tmp_path])
  assert commands.run(start, "tf1ps-status", str(tmp_path / "none")) == (
    1, ["tf1ps-status: %s/none has no run: no job of tf1ps has saved there" % tmp_path])


def test_a_job_that_ends_while_it_is_asked(start, tmp_path, monkeypatch):
  """The launcher's note is still there, its ps is gone, and the directory has the end."""
  (address,) = harness.addresses(1)
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  RunFile(str(tmp_path), address).write("a", RUN_ENDED, 3)
  with running_jobs.announced("p.py", str(tmp_path), "") as job:
    job.write({"ps": [address], "worker": []})
    task = start("status", commands.run_with_temporary, str(tmp_path), "tf1ps-status",
                 [str(tmp_path), "--start_timeout=0.3"], TF_CONFIG=None)
    assert task.wait() == 1
  assert task.last_line == "tf1ps-status: the run in %s has ended at global step 3" % tmp_path


@pytest.mark.slow
def test_status_finds_the_jobs_of_this_machine(start, tmp_path):
  saves = str(tmp_path / "c")

  def begin(name, *argv, temporary=tmp_path):
    return start(name, commands.run_with_temporary, str(temporary), name, argv, TF_CONFIG=None)

  def ask(*argv, temporary=tmp_path):
    task = begin("tf1ps-status", *argv, temporary=temporary)
    return task.wait(), harness.without_logs(task.lines)

  def tasks_of(*argv, **where):
    code, lines = ask("--log_format=json", *argv, **where)
    return None if code else [
      task["task"] for task in json.loads(lines[-1])["jobs"][0]["tasks"]]

  code, lines = ask()
  assert code == 1 and lines[0].startswith(
    "tf1ps-status: tf1ps-local runs no job of yours on this machine. For a job elsewhere give")
  endless = [commands.LINE, "--num_workers=1", "--steps=1000000", "--step_seconds=0.01"]
  job = begin("tf1ps-local", *endless, "--checkpoint_dir=" + saves)
  job.wait_for("tf1ps-local: started")
  harness.wait_until(lambda: tasks_of() == ["ps 0", "worker 0"], what="the status")
  assert tasks_of(saves) == ["ps 0", "worker 0"]
  # Without the launcher's file, as on another machine that shares the directory.
  assert tasks_of(saves, temporary=saves) == ["ps 0", "worker 0"]
  other = begin("tf1ps-local", *endless, "--replication=all_reduce")
  other.wait_for("tf1ps-local: started")
  code, (head, *lines) = ask()
  assert (code, head) == (1, "tf1ps-status: 2 jobs run here. Call")
  assert [line.partition("  # ")[2].rpartition(", process ")[0] for line in lines] == [
    commands.LINE.partition("=")[2]] * 2
  flags = [line.split()[2] for line in lines]
  harness.wait_until(lambda: tasks_of(flags[1]) == ["worker 0"], what="the other's status")
  for task in (job, other):
    task.signal()
    task.wait()
  code, lines = ask(saves)
  assert code == 1 and lines[0].startswith("tf1ps-status: the run in %s was stopped" % saves)
