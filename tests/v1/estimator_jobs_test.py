"""Jobs of tf.estimator by TF_CONFIG: they end whoever is killed or comes late, and stay in step."""
from __future__ import annotations

import pytest

from tests.v1 import estimator_jobs_tasks as tasks
from tests.v1 import estimator_test

EVALUATOR = ("evaluator", 0)


@pytest.fixture
def job(start, tmp_path):
  """A job of a chief, two workers, two ps and an evaluator: its tasks by name, and begin(name)."""
  return Job(start, estimator_test.cluster_of(workers=2, ps=2), str(tmp_path))


class Job(dict):
  """The processes of a job, by task."""

  def __init__(self, start, cluster, folder):
    super().__init__()
    self.environment = {}
    self._start, self._cluster, self._folder = start, cluster, folder
    self.names = [(job, index) for job, hosts in cluster.items() for index in range(len(hosts))]
    self.names.append(EVALUATOR)

  def begin(self, *names):
    for name in names:
      self[name] = self._start(
        "%s %d" % name, tasks.train_paced, self._cluster, *name, self._folder, **self.environment)
    return self[names[-1]]

  def go(self):
    """Lets the tasks make the rest of the steps, as fast as they can."""
    open(self._folder + "/go", "w").close()

  def assert_ends(self):
    estimator_test.assert_all_end(self)
    last = estimator_test.checkpoint_steps(self._folder + "/model")[-1]
    assert last >= tasks.STEPS
    assert "Saving dict for global step %d" % last in self[EVALUATOR].output


def step_of(line):
  return int(line.rpartition("made step ")[2])


def test_a_worker_that_comes_when_the_others_have_finished(job):
  late = ("worker", 1)
  job.go()
  job.begin(*[name for name in job.names if name != late])
  assert job["worker", 0].wait() == 0
  job.begin(late)
  job.assert_ends()


@pytest.mark.slow
def test_a_worker_that_comes_when_the_job_has_ended(job):
  late = ("worker", 1)
  job.environment["TF1PS_HEARTBEAT_TIMEOUT"] = "8"  # so long the chief waits for it
  job.go()
  job.begin(*[name for name in job.names if name != late])
  job.assert_ends()
  assert "task:1 never joined, and the run ends without it" in job["chief", 0].output
  job.begin(late)
  job.assert_ends()


@pytest.mark.parametrize("killed", [("worker", 1), ("chief", 0)], ids=["worker", "chief"])
def test_a_task_is_killed_and_comes_back(job, killed):
  job.begin(*job.names)
  task = job[killed]
  task.wait_for("made step")
  job[EVALUATOR].wait_for("Saving dict for global step")
  task.kill()
  seen = step_of(task.lines[-1])
  again = job.begin(killed)
  assert step_of(again.wait_for("made step")) > seen  # the variables on the ps have stayed
  job.go()
  job.assert_ends()


@pytest.mark.slow
def test_a_ps_is_killed_and_comes_back(job):
  job.begin(*job.names)
  job["chief", 0].wait_for("made step")
  job[EVALUATOR].wait_for("Saving dict for global step")
  job["ps", 0].kill()
  job.begin(("ps", 0))
  job["chief", 0].wait_for("Restoring parameters from")
  job.go()
  job.assert_ends()
