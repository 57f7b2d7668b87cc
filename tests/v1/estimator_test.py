"""`tf.estimator` over tf1ps' servers and sessions. Its names are tested in estimator_names_test."""
from __future__ import annotations

import json
import os
import re

import pytest
import tensorflow.compat.v1 as stock

from tests import harness
from tests.v1 import estimator_tasks

NEWER = pytest.mark.skipif(stock.__version__.startswith("1."), reason="it has tf.estimator")


def cluster_of(workers=1, ps=1, chief="chief"):
  ports = harness.addresses(1 + workers + ps)
  return {chief: ports[:1], "worker": ports[1:1 + workers], "ps": ports[1 + workers:]}


def start_job(start, cluster, model_dir, *args, evaluator=True, **environment):
  tasks = [(job, index) for job, hosts in cluster.items() for index in range(len(hosts))]
  if evaluator:
    tasks.append(("evaluator", 0))
  return {(job, index): start(
    "%s %d" % (job, index), estimator_tasks.train_as, cluster, job, index, model_dir, *args,
    **environment) for job, index in tasks}


def assert_all_end(job):
  codes = {name: task.wait() for name, task in job.items()}
  assert set(codes.values()) == {0}, "\n".join(
    "%s: %s\n%s" % (name, codes[name], task.output) for name, task in job.items())


def checkpoint_steps(model_dir):
  state = stock.train.get_checkpoint_state(model_dir)
  return [int(path.split("-")[-1]) for path in state.all_model_checkpoint_paths]


@pytest.mark.slow
@pytest.mark.parametrize("chief", ["chief", "master"])
def test_a_job_ends_by_itself(chief, start, tmp_path):
  evaluator = chief == "chief"
  cluster = cluster_of(chief=chief)
  job = start_job(start, cluster, str(tmp_path), evaluator=evaluator)
  assert_all_end(job)
  assert checkpoint_steps(str(tmp_path))[-1] >= estimator_tasks.STEPS
  assert len(os.listdir(str(tmp_path / "export" / "last"))) == 1
  evaluates = job["evaluator", 0] if evaluator else job["master", 0]
  assert "Saving dict for global step %d" % checkpoint_steps(str(tmp_path))[-1] in evaluates.output
  again = start("chief again", estimator_tasks.train_as, cluster, chief, 0, str(tmp_path))
  assert again.wait() == 0
  assert "nothing is left to do" in again.output


@pytest.mark.slow
def test_the_end_of_the_data_ends_the_evaluator(start, tmp_path):
  job = start_job(start, cluster_of(), str(tmp_path), None, 30)
  assert_all_end(job)
  assert checkpoint_steps(str(tmp_path))[-1] == 60  # of two replicas; the last update is saved
  assert len(os.listdir(str(tmp_path / "export" / "last"))) == 1


@pytest.mark.slow
def test_a_program_trains_again_and_again(start, tmp_path):
  """The end of the process is the end of its part; the chief saves what a worker did after it."""
  cluster = cluster_of()
  ends = {"chief": [20, 40], "worker": [20, 40, 70], "ps": []}
  job = {(name, 0): start(
    name, estimator_tasks.train_often, cluster, name, 0, str(tmp_path), ends[name])
    for name in cluster}
  assert_all_end(job)
  steps = [int(line.split()[1]) for line in job["chief", 0].lines if line.startswith("evaluated")]
  assert steps[0] >= 20 and steps[1] >= 40
  assert checkpoint_steps(str(tmp_path))[-1] >= 70


def test_with_all_that_tf1ps_adds(start, tmp_path):
  job = start_job(
    start, cluster_of(ps=2), str(tmp_path), evaluator=False, TF1PS_PACK_BYTES="1024",
    TF1PS_PS_STRATEGY="greedy", TF1PS_STALENESS_POLICY="max_lead:3,drop:5")
  assert_all_end(job)
  assert checkpoint_steps(str(tmp_path))[-1] >= estimator_tasks.STEPS


@pytest.mark.parametrize("last_step, batches, wraps", [
  (203, 1000, True), pytest.param(1000, 203, False, marks=pytest.mark.slow)])
def test_runs_of_several_steps_make_the_steps_of_single_runs(
    start, tmp_path, last_step, batches, wraps):
  """The last step, the last example, the intervals and the values are those of single steps."""
  cluster = cluster_of(workers=0)
  del cluster["worker"]
  job = {(name, 0): start(name, estimator_tasks.train_in_long_runs, cluster, name, 0,
                          str(tmp_path), last_step, batches, wraps) for name in cluster}
  assert_all_end(job)
  output = job["chief", 0].output
  assert "16 steps per run from here on: " in output
  place = 0.0
  for number in range(203):
    place += 0.1 * (number - place)
  last = stock.train.latest_checkpoint(str(tmp_path))
  assert last.endswith("-203")
  assert stock.train.load_variable(last, "place") == pytest.approx(place, rel=1e-5)
  saved = checkpoint_steps(str(tmp_path))
  assert len(saved) >= 5 and all(
    50 <= after - before < 66 for before, after in zip(saved[1:-2], saved[2:-1])), saved
  logged = [int(step) for step in re.findall(r"step = (\d+)", output)]
  assert 4 <= len(set(logged)) <= 6, output


@pytest.mark.slow
def test_one_process_trains_evaluates_and_predicts(start, tmp_path):
  task = start("local", estimator_tasks.train_here, str(tmp_path))
  assert task.wait() == 0, task.output
  found = json.loads(task.last_line)
  assert found["steps"] == [0, 20, 40, 60]
  assert found["metrics"]["global_step"] == 60
  assert found["metrics"]["error"] == pytest.approx(0.0739977, abs=1e-6)
  assert found["predicted"][0] == pytest.approx(0.8450392, abs=1e-6)  # 1 is the true one


@pytest.mark.parametrize("name", ["refusals"])
def test_a_program_sees(name, start):
  task = start(name, getattr(estimator_tasks, name))
  assert task.wait() == 0, task.output


def test_another_release_of_the_package(start_without_v1):
  task = start_without_v1("another", estimator_tasks.another_release_of_the_package)
  assert task.wait() == 0, task.output


@NEWER
def test_without_the_package(start_without_v1):
  task = start_without_v1("without", estimator_tasks.without_the_package)
  assert task.wait() == 0, task.output
