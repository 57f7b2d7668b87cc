"""Jobs that share servers: two programs with the same names of variables on one pair of ps."""
from __future__ import annotations

import pathlib
import re
import signal

import pytest

from tests import harness
from tests.training import job as job_lib
from tf1ps.cli import worker
from tf1ps.cluster import parsing
from tf1ps.state import reset

SHAPES = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "shapes.py")


class TwoJobs(job_lib.Job):
  """Persistent ps and four workers, 0 and 1 of one job, 2 and 3 of the other."""

  def __init__(self, start, num_ps=1):
    super().__init__(start, num_ps=num_ps, num_workers=4)
    self.servers = [self.ps(index, "--persistent") for index in range(num_ps)]

  def start_workers(self, first, directory, *flags):
    """Starts the two workers from this index on, the first one as chief."""
    return [self._program("worker", worker.run, index, [
      SHAPES, "--job_workers=%d-%d" % (first, first + 1), "--optimizer=sgd",
      "--heartbeat_timeout=10",
      *(["--checkpoint_dir=" + str(directory)] if directory else []), *flags])
      for index in (first, first + 1)]


def wait_for_checkpoints(chief):
  harness.wait_until(lambda: len(re.findall("saved .*ckpt-", chief.output)) > 2)


def error_of(chief):
  return float(re.search(r"test error ([\d.e-]+)", chief.output).group(1))


@pytest.mark.slow
def test_two_jobs_train_side_by_side_and_one_is_reset(start, tmp_path):
  jobs = TwoJobs(start, num_ps=2)
  # All stand in the middle until both jobs have come so far, and the other one until the reset,
  # which wants every task of the cluster, is over.
  common = ["--steps=600", "--step_seconds=0.01", "--save_checkpoints=steps:50", "--block_at=120"]
  go_on = [tmp_path / "one goes on", tmp_path / "the other goes on"]
  one = jobs.start_workers(0, tmp_path / "one", "--width=1", "--learning_rate=0.1",
                           "--block_until=%s" % go_on[0], *common)
  other = jobs.start_workers(2, tmp_path / "two", "--width=5", "--learning_rate=0.03",
                             "--block_until=%s" % go_on[1], *common)
  wait_for_checkpoints(one[0])
  wait_for_checkpoints(other[0])
  go_on[0].write_text("")
  container, = job_lib.find(one[0], r"container (job-\S+)\n")
  assert container == "job-0-1"
  reset.reset_containers(parsing.from_cluster_spec(jobs.jobs, "ps", 0), [container])
  go_on[1].write_text("")
  one[0].wait_for("container %s was reset" % container)
  assert job_lib.codes(*one, *other) == [0, 0, 0, 0]
  assert "recovered" in one[0].output and "recovered" in one[1].output
  assert not any("recovered" in task.output or "was reset" in task.output for task in other)
  assert error_of(one[0]) < 0.05 and error_of(other[0]) < 0.05
  for server in jobs.servers:
    server.signal(signal.SIGTERM)
  assert job_lib.codes(*jobs.servers) == [0, 0]


@pytest.mark.slow
def test_two_jobs_of_one_program_are_told_apart_unless_they_are_given_one_container(start):
  jobs = TwoJobs(start)
  one = jobs.start_workers(0, None, "--steps=100000", "--step_seconds=0.02")
  one[0].wait_for("progress: step ")
  other = jobs.start_workers(2, None, "--steps=10")
  assert job_lib.codes(*other) == [0, 0]
  again = jobs.start_workers(2, None, "--steps=10", "--container=job-0-1")
  assert again[0].wait() == 1
  assert re.search(r"container job-0-1 is in use by the job whose chief is "
                   r"/job:worker/task:0 \(process %d on " % one[0].pid, again[0].output)
  for task in one + again[1:]:
    task.kill()


@pytest.mark.slow
def test_a_worker_that_looks_in_another_container_than_its_chief_is_told(start):
  job = job_lib.Job(start)
  job.ps()
  chief = job.worker(0, "--steps=100000", "--step_seconds=0.02", "--container=theirs")
  chief.wait_for("progress: step ")
  for name, where in ("mine", "container mine"), ("", "the default container"):
    other = job.worker(1, "--steps=100000", "--container=" + name)
    assert other.wait() == 1
    assert ("the chief /job:worker/task:0 keeps the job's state in container theirs, but this task "
            "looks in %s" % where) in other.output
  chief.kill()


@pytest.mark.slow
def test_a_ps_that_was_told_no_container_ends_with_the_job_in_whichever(start):
  job = job_lib.Job(start, num_ps=2)
  ps, workers = job.all("--steps=20", "--container=a.b/c")
  assert job_lib.codes(*workers, *ps) == [0, 0, 0, 0]


@pytest.mark.slow
def test_tasks_with_other_directories_or_programs_train_one_job(start, tmp_path):
  """Their hosts may have other paths: a ps that serves one job has one container."""
  job = job_lib.Job(start, num_workers=3)
  ps = job.ps()
  line = pathlib.Path(job_lib.PROGRAM.split("=")[1])
  copy = tmp_path / "copied.py"
  copy.write_text(line.read_text())
  held = ["--steps=60", "--block_at=5", "--block_until=%s" % (tmp_path / "go on")]
  workers = [job.worker(0, "--checkpoint_dir=%s" % (tmp_path / "chief"), *held),
             job.worker(1, "--checkpoint_dir=%s" % (tmp_path / "another"), *held),
             job.worker(2, "--program=%s" % copy, *held)]
  for task in workers:
    task.wait_for("holds step 5")
  (tmp_path / "go on").write_text("")
  assert job_lib.codes(*workers, ps) == [0, 0, 0, 0]
