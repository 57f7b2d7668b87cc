"""A chief of another run, program, cluster or directory meets the living members of a run.

The run trains on and ends as if nobody had come: its state is not cleared, and no step is lost. So
it does when its own chief comes back to a damaged file.
"""
from __future__ import annotations

import re
import shutil

import pytest

from tests import harness
from tests.survival import metadata_job
from tests.training.job import Job, codes, find
from tf1ps.checkpoint import checkpoints
from tf1ps.state import RUN_ENDED, RunFile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What comes while the run's chief lives, or is away: (the guest, the last line).
WHILE_IT_LIVES = {
  "the same command": "/job:worker/task:0 cannot listen at .*: another process has that port",
  "another cluster": "was started with a different cluster than /job:worker/task:0: ",
  "its directory": "another job saves into .*/one: its chief is process ",
}
WHILE_IT_IS_AWAY = {
  "another program": "cannot go on with that run: its graph has other variables",
  "a directory with checkpoints":
    "cannot go on with that run: its directory has checkpoints of another run",
  "another run": "cannot go on with that run: its directory has run other",
  "another cluster": "was started with a different cluster than /job:worker/task:0: ",
}


class Run(object):
  """A job that trains until its test lets it end, and a guest."""

  def __init__(self, start, folder):
    self._start, self._folder = start, folder
    self.directory = folder / "one"
    self._stop = folder / "stop"
    self.job = Job(start, flags=[
      "--steps=100000", "--step_seconds=0.05", "--save_checkpoints=steps:20",
      "--stop_when=%s" % self._stop, "--checkpoint_dir=%s" % self.directory])
    (self.ps,), (self.chief, self.worker) = self.job.all()
    harness.wait_until(lambda: self.step() >= 20, what="a checkpoint of step 20")

  def step(self):
    """The step of the last checkpoint."""
    listed = checkpoints.listed_checkpoints(str(self.directory))
    return int(listed[-1].rpartition("-")[2]) if listed else 0

  def guest(self, kind):
    """Starts a chief that is none of this run."""
    jobs, flags, two = self.job.jobs, [], self._folder / "two"
    if kind in ("a directory with checkpoints", "another run", "an empty directory"):
      flags.append("--checkpoint_dir=%s" % two)
    if kind == "a directory with checkpoints":
      shutil.copytree(str(self.directory), str(two))
      (two / RunFile.NAME).unlink()
    if kind == "another run":
      two.mkdir()
      RunFile(str(two)).write("other", RUN_ENDED, 7)
    if kind == "another program":
      flags.append("--extra_variable")
    guest = Job(self._start, flags=self.job._flags)
    guest.jobs = dict(jobs)
    if kind == "another cluster":
      guest.jobs["worker"] = harness.addresses(1) + jobs["worker"][1:] + harness.addresses(1)
    elif kind == "its directory":
      guest.jobs = {job: harness.addresses(len(jobs[job])) for job in jobs}
      guest.ps()
    return guest.worker(0, *flags)

  def end(self, *more):
    """Ends the job; returns its exit codes, and those of more tasks."""
    self._stop.write_text("")
    return codes(self.worker, self.chief, self.ps, *more)


@pytest.fixture
def run(start, tmp_path):
  return Run(start, tmp_path)


def check_end(run):
  """The job has trained on from where it was, and has ended well."""
  assert run.end() == [0, 0, 0], run.chief.output
  for task in (run.worker, run.chief):
    assert "steps are lost" not in task.output and "recovered" not in task.output
  assert RunFile(str(run.directory)).read().state == RUN_ENDED
  (last,) = find(run.chief, r"global step (\d+) in ")
  assert run.step() == last


def check_guest(guest, pattern):
  assert guest.wait() == 1, guest.output
  assert re.search(pattern, guest.output), guest.output


@pytest.mark.parametrize("kind", list(WHILE_IT_LIVES))
def test_a_guest_while_the_chief_lives(run, kind):
  check_guest(run.guest(kind), WHILE_IT_LIVES[kind])
  before = run.step()
  harness.wait_until(lambda: run.step() > before, what="a further checkpoint")
  check_end(run)


@pytest.mark.parametrize("kind", list(WHILE_IT_IS_AWAY))
def test_a_guest_while_the_chief_is_away(run, kind):
  run.chief.kill()
  check_guest(run.guest(kind), WHILE_IT_IS_AWAY[kind])
  assert run.worker.is_running and run.ps.is_running
  run.chief = run.job.worker(0)
  run.chief.wait_for("the servers keep this run's live state")
  check_end(run)


@pytest.mark.parametrize("file, fault", [
  ("run", "deleted"), ("run", "garbage"), ("state", "garbage")])
def test_the_chief_comes_back_to_a_damaged_file(run, file, fault):
  run.chief.kill()
  name = {"run": RunFile.NAME, "state": checkpoints.STATE_FILE}[file]
  metadata_job.damage(str(run.directory / name), fault, file)
  run.chief = run.job.worker(0)
  run.chief.wait_for(name)
  run.chief.wait_for("the servers keep this run's live state")
  check_end(run)


def test_a_chief_with_an_empty_directory_is_the_chief_of_the_run(run):
  before = run.step()
  run.chief.kill()
  run.chief = run.guest("an empty directory")
  run.chief.wait_for("This chief takes the run over")
  run.chief.wait_for("the servers keep this run's live state")
  run.directory = run.directory.with_name("two")
  harness.wait_until(lambda: run.step() > before, what="a checkpoint in its directory")
  check_end(run)
