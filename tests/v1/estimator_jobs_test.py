"""Jobs of tf.estimator by TF_CONFIG: they end whoever is killed or comes late, and stay in step."""
from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as stock

from tests import docs_test
from tests.v1 import carried_test, estimator_test
from tests.v1 import estimator_jobs_tasks as tasks

EVALUATOR = ("evaluator", 0)
# After so many steps, on TensorFlow 1.15: the loss, and checksums of variables.
EXPECTED = {
  200: {"loss": 0.0865177, "linear_model/city_X_year_bucketized/weights": 0.1113027,
        "input_layer/city_embedding/embedding_weights": -0.1309662, "global_step": 200,
        "dense/kernel": -0.1176856, "dense/kernel/Adam_1": 0.0705852},
  400: {"loss": 0.0103711, "linear_model/city_X_year_bucketized/weights": 0.1466863,
        "input_layer/city_embedding/embedding_weights": -0.1296714, "global_step": 400,
        "dense/kernel": -0.1119379, "dense/kernel/Adam_1": 0.0577877},
}


@pytest.fixture
def job(start, tmp_path):
  """A job of a chief, two workers, two ps and an evaluator: its tasks by name, and begin(name)."""
  return Job(start, estimator_test.cluster_of(workers=2, ps=2), str(tmp_path))


class Job(dict):
  """The processes of a job, by task."""

  def __init__(self, start, cluster, folder):
    super().__init__()
    self.environment, self.function = {}, tasks.train_paced
    self._start, self._cluster, self._folder, self.argument = start, cluster, folder, folder
    self.names = [(job, index) for job, hosts in cluster.items() for index in range(len(hosts))]
    self.names.append(EVALUATOR)

  def begin(self, *names):
    for name in names:
      self[name] = self._start(
        "%s %d" % name, self.function, self._cluster, *name, self.argument, **self.environment)
    return self[names[-1]]

  def go(self):
    """Lets the tasks make the rest of the steps, as fast as they can."""
    open(self._folder + "/go", "w").close()

  def assert_ends(self, steps=tasks.STEPS):
    estimator_test.assert_all_end(self)
    last = estimator_test.checkpoint_steps(self._folder + "/model")[-1]
    assert last >= steps
    assert "Saving dict for global step %d" % last in self[EVALUATOR].output


def step_of(line):
  return int(line.rpartition("made step ")[2])


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("killed", [("worker", 1), ("chief", 0)], ids=["worker", "chief"])
def test_a_task_is_killed_and_comes_back(job, killed):
  job.begin(*job.names)
  task = job[killed]
  task.wait_for("made step")
  job[EVALUATOR].wait_for("Saving dict for global step")
  task.kill()
  seen = step_of(task.last_line)
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


@pytest.mark.slow
def test_each_synchronous_update_is_the_mean_of_all_replicas(job, tmp_path):
  job.function = tasks.train_together
  job.begin(*job.names)
  job.assert_ends(tasks.TOGETHER)
  reader = stock.train.load_checkpoint(str(tmp_path / "model"))
  mean = sum(tasks.GRADIENTS) / len(tasks.GRADIENTS)
  assert reader.get_tensor("weight") == -mean * reader.get_tensor("global_step")


@pytest.mark.slow
@pytest.mark.any_tensorflow
def test_the_program_of_the_page(job, tmp_path):
  command, = [c for c in docs_test.commands("docs/drop_in.md") if "flats.py" in c]
  _, program, path, *arguments = shlex.split(command)
  assert program == "tf1ps-run" and arguments == ["--model_dir=/shared/flats"]
  job.function = tasks.run_program
  job.argument = [path, "--model_dir=" + str(tmp_path / "model"), "--max_steps=300"]
  job.begin(*job.names)
  job.assert_ends(300)
  best, = (tmp_path / "model" / "export" / "best").iterdir()
  if stock.__version__.startswith("1."):
    return
  done = subprocess.run([sys.executable, "-m", "tests.v1.estimator_jobs_tasks", str(best)],
                        check=True, stdout=subprocess.PIPE, universal_newlines=True)
  scores, = json.loads(done.stdout.rpartition("scores: ")[2])
  assert len(scores) == 2 and sum(scores) == pytest.approx(1), scores


@pytest.mark.slow
def test_a_program_with_a_model_fn_of_its_own_in_step(job, tmp_path):
  job.function = tasks.run_program
  job.argument = ["examples/digits_model_fn.py", "--model_dir=" + str(tmp_path / "model"),
                  "--max_steps=150", "--sync"]
  job.begin(*job.names)
  job.assert_ends(150)
  assert float(re.findall(r"accuracy = ([0-9.]+)", job[EVALUATOR].output)[-1]) > 0.9
  assert len(list((tmp_path / "model" / "export" / "last").iterdir())) == 1


def assert_expected(output, step):
  found = json.loads(output.rpartition("found: ")[2])
  assert {name: found[name] for name in EXPECTED[step]} == pytest.approx(
    EXPECTED[step], rel=1e-5, abs=1e-6)


@pytest.mark.slow
def test_a_model_fn_trains_as_on_tensorflow_1_15(start, tmp_path):
  for step in EXPECTED:  # the second goes on from the first's checkpoint
    task = start("training", tasks.train_to, str(tmp_path), step)
    assert task.wait() == 0, task.output
    assert_expected(task.output, step)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(os.path.exists, carried_test.PYTHONS)),
                    reason="needs the environments of `make test` and of `make test-legacy`")
@pytest.mark.parametrize("pythons", [carried_test.PYTHONS, carried_test.PYTHONS[::-1]],
                         ids=["back", "forth"])
def test_training_goes_on_on_the_other_tensorflow(pythons, tmp_path):
  for python, step in zip(pythons, EXPECTED):
    done = subprocess.run(
      [python, "-m", "tests.v1.estimator_jobs_tasks", str(tmp_path), str(step)],
      stdout=subprocess.PIPE, check=True, universal_newlines=True)
    assert_expected(done.stdout, step)
