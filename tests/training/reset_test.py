"""Training sessions whose container is reset under them."""
from __future__ import annotations

import pytest

from tests.training.job import Job, codes, find, steps, wait_for_step
from tf1ps.cluster import parsing
from tf1ps.state import reset


def reset_container(job, *names):
  cluster = parsing.from_cluster_spec(job.jobs, "ps", 0)
  return reset.reset_containers(cluster, names)


@pytest.mark.slow
def test_a_job_whose_container_is_reset_goes_on_from_its_checkpoint(start, tmp_path):
  # Neither makes its 51st step before the reset, so that the job is not over then.
  go_on = tmp_path / "go on"
  job = Job(start, num_ps=2, steps=120, checkpoint_dir=str(tmp_path / "checkpoints"),
            save_steps=20, go_on=str(go_on))
  ps = [job.trainer_ps(0), job.trainer_ps(1)]
  workers = [job.trainer(0), job.trainer(1)]
  wait_for_step(workers[0], 50)
  cleared = reset_container(job, "default")
  assert [one.containers for one in cleared] == [["ps"], ["ps"], ["worker"], ["worker"]]
  go_on.write_text("")
  for worker in workers:
    worker.wait_for("recovered: session ")
    worker.wait_for("the default container was reset: this session ends")
  (restored,) = find(workers[0], r"restored .*/model.ckpt-(\d+)")
  assert restored >= 20
  assert codes(*workers, *ps) == [0, 0, 0, 0]
  assert [worker.output.count("this session ends") for worker in workers] == [1, 1]
  assert 120 <= max(steps(workers[0]) + steps(workers[1])).number < 123


@pytest.mark.slow
def test_a_reset_of_another_container_disturbs_nobody(start, tmp_path):
  go_on = tmp_path / "go on"
  job = Job(start, steps=150, checkpoint_dir=str(tmp_path / "checkpoints"), go_on=str(go_on))
  ps, workers = job.trainer_ps(), [job.trainer(0), job.trainer(1)]
  wait_for_step(workers[0], 20)
  reset_container(job, "another")  # which wants every task of the cluster
  go_on.write_text("")
  assert codes(*workers, ps) == [0, 0, 0]
  assert not any("recovered" in worker.output for worker in workers)
