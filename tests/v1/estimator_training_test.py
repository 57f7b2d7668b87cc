"""The package's behaviour at training and evaluation, with tf1ps' session inside."""
from __future__ import annotations

import pytest

from tests import harness
from tests.v1 import estimator_training_tasks as tasks


@pytest.mark.slow
@pytest.mark.parametrize("name", [
  "steps_are_relative_and_ends_absolute", "evaluations", "hooks_and_listeners",
  "losses_that_are_no_numbers", "evaluations_while_training", "what_stays_of_checkpoints",
  "the_others_take_their_last_steps_after_max_steps",
  "a_checkpoint_is_deleted_before_it_is_read"])
def test_in_one_process(name, start, tmp_path):
  task = start(name, getattr(tasks, name), str(tmp_path))
  assert task.wait() == 0, task.output


@pytest.mark.slow
def test_a_run_that_fails_ends_the_evaluator_with_1(start, tmp_path):
  chief, ps = harness.addresses(2)
  cluster = {"chief": [chief], "ps": [ps]}
  job = {name: start(name, tasks.fail_as, cluster, name, str(tmp_path))
         for name in ("chief", "ps", "evaluator")}
  assert {name: task.wait() for name, task in job.items()} == {
    "chief": 1, "ps": 1, "evaluator": 1}
  assert "the run has failed at step" in job["evaluator"].output


@pytest.mark.slow
def test_a_chief_that_fails_before_its_session_ends_the_ps(start):
  chief, ps = harness.addresses(2)
  cluster = {"chief": [chief], "ps": [ps]}
  job = {name: start(name, tasks.fail_as, cluster, name, "/proc/nowhere")
         for name in ("ps", "chief")}
  assert job["chief"].wait() == 1
  assert "/proc/nowhere" in job["chief"].output
  assert job["ps"].wait() == 1
  assert "/job:chief/task:0 failed: CheckpointError: " in job["ps"].output  # not: is lost


def test_a_second_evaluator_is_refused(start, tmp_path):
  cluster = {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
  task = start("evaluator 1", tasks.fail_as, cluster, "evaluator", str(tmp_path), 1)
  assert task.wait() == 1
  assert "there can only be one `evaluator`" in task.output
