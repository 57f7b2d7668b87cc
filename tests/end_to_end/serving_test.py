"""Workers that only lend their devices end with the job, and nobody waits for their steps."""
from __future__ import annotations

import pytest

from tests import harness, serving_tasks


@pytest.mark.slow
def test_a_worker_that_only_serves_ends_with_the_job(start):
  hosts = harness.addresses(3)
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  serving = [start("ps 0", serving_tasks.serve, cluster, "ps", 0),
             start("worker 1", serving_tasks.serve, cluster, "worker", 1)]
  client = start("worker 0", serving_tasks.train_on_both, cluster, 10)
  assert client.wait() == 0, client.output
  client.wait_for("total 30.0")
  for task in serving:
    assert task.wait() == 0, task.output
    task.wait_for("served: the chief released")
