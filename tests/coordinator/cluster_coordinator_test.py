from __future__ import annotations

import pathlib
import re
import signal

import pytest

from tests import coordinator_tasks, harness


class Job:
  """Two ps and two workers that serve, and a coordinator, as processes."""

  def __init__(self, start):
    self._start = start
    self.jobs = {"chief": harness.addresses(1), "ps": harness.addresses(2),
                 "worker": harness.addresses(2)}

  def serve(self, job, index):
    return self._start("%s %d" % (job, index), coordinator_tasks.serve, self.jobs, job, index)

  def coordinate(self, *args):
    return self._start("chief 0", coordinator_tasks.coordinate, self.jobs, *args)


@pytest.mark.job
@pytest.mark.slow
def test_a_worker_that_is_killed_three_times_disturbs_nobody(start, tmp_path):
  job = Job(start)
  kills = [(number, str(tmp_path / ("%d" % number))) for number in (500, 1000, 1500)]
  tasks = [job.serve("ps", 0), job.serve("ps", 1), job.serve("worker", 0)]
  worker = job.serve("worker", 1)
  chief = job.coordinate(2000, kills)
  for number, path in kills:
    chief.wait_for("step %d " % (number - 200))
    worker.kill()
    before = len(chief.lines)
    worker = job.serve("worker", 1)
    chief.wait_for("task:1 takes steps again", since=before)
    pathlib.Path(path).touch()
  assert chief.wait() == 0, chief.output
  found = re.search(
    r"updates (\d+) of 2000 retries (\d+) lost 0 .*task:0': (\d+), .*task:1': (\d+)", chief.output)
  updates, retries, by_0, by_1 = map(int, found.groups())
  assert 1 <= retries <= 3 and by_0 + by_1 == 2000 and by_1 > 0
  assert 2000 <= updates <= 2000 + retries  # at least once
  assert "examples 400 79800" in chief.output
  for task in [*tasks, worker]:
    assert task.wait() == 0 and "the job has ended" in task.output


@pytest.mark.slow
def test_a_worker_that_is_killed_and_never_comes_back_holds_no_step(start):
  job = Job(start)
  tasks = [job.serve("ps", 0), job.serve("ps", 1), job.serve("worker", 0)]
  worker = job.serve("worker", 1)
  chief = job.coordinate(2000, [])
  chief.wait_for("step 300 ")
  worker.kill()
  assert chief.wait() == 0, chief.output
  assert re.search(r"updates 200\d of 2000 retries [01] lost 0", chief.output), chief.output
  assert [task.wait() for task in tasks] == [0, 0, 0]


@pytest.mark.slow
def test_a_worker_that_stands_still_loses_its_step_and_comes_back(start, tmp_path):
  job = Job(start)
  path = tmp_path / "again"
  tasks = [job.serve("ps", 0), job.serve("ps", 1), job.serve("worker", 0), job.serve("worker", 1)]
  chief = job.coordinate(800, [(500, str(path))])
  chief.wait_for("step 300 ")
  tasks[-1].signal(signal.SIGSTOP)
  chief.wait_for("task:1 is lost at step")
  tasks[-1].signal(signal.SIGCONT)
  chief.wait_for("task:1 takes steps again")
  path.touch()
  assert chief.wait() == 0, chief.output
  assert re.search(r"updates 80[01] of 800 retries 1 lost 0", chief.output), chief.output
  assert [task.wait() for task in tasks] == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_ps_that_is_killed_and_restarted_comes_back_from_the_checkpoint(start, tmp_path):
  job = Job(start)
  path = tmp_path / "again"
  tasks = [job.serve("ps", 0), job.serve("worker", 0), job.serve("worker", 1)]
  ps = job.serve("ps", 1)
  chief = job.coordinate(1200, [(600, str(path))], str(tmp_path / "checkpoints"))
  chief.wait_for("step 550 ")
  ps.kill()
  tasks.append(job.serve("ps", 1))
  path.touch()
  assert chief.wait() == 0, chief.output
  found = re.search(r"updates (\d+) of 1200 retries (\d+) lost (\d+)", chief.output)
  updates, retries, lost = map(int, found.groups())
  assert updates >= 1200 - lost and retries <= 4, chief.output
  assert [task.wait() for task in tasks] == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_ps_that_is_killed_and_stays_away_ends_the_job(start):
  job = Job(start)
  tasks = [job.serve("ps", 0), job.serve("worker", 0), job.serve("worker", 1)]
  ps = job.serve("ps", 1)
  chief = job.coordinate(10**6, [], None, 5.0)
  chief.wait_for("step 300 ")
  ps.kill()
  assert chief.wait() == 1
  assert "/job:ps/task:1 at %s: refused" % job.jobs["ps"][1] in chief.last_line, chief.output
  for task in tasks:
    assert task.wait() == 1 and "/job:chief/task:0 failed: Step" in task.output, task.output
