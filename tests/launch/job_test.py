"""The description of a job."""
from __future__ import annotations

import pytest

from tf1ps.launch import job

pytestmark = pytest.mark.any_tensorflow


def test_the_tasks_of_a_job_and_their_flags():
  tasks = job.describe_tasks(1, 2, True, ["a:1", "b:2", "b:3"])
  assert [(task.name, task.address) for task in tasks] == [
    ("ps 0", "a:1"), ("worker 0", "b:2"), ("worker 1", "b:3"), ("evaluator 0", "")]
  assert job.cluster_flags(tasks) == ["--ps_hosts=a:1", "--worker_hosts=b:2,b:3"]
  assert tasks[2].flags == ["--job_name=worker", "--task_index=1"]
  assert tasks[3].flags == ["--job_name=evaluator"]


def test_a_job_whose_addresses_a_scheduler_chooses():
  tasks = job.describe_tasks(0, 1)
  assert tasks == [job.Task("worker", 0)]


@pytest.mark.parametrize("numbers, text", [
  ((1, 1), "1 ps and 1 worker"), ((0, 2), "0 ps and 2 workers"),
  ((2, 1, True), "2 ps, 1 worker and 1 evaluator")])
def test_the_tasks_in_words(numbers, text):
  assert job.count_tasks(job.describe_tasks(*numbers)) == text
