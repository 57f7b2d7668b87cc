"""The epochs that a job has finished before."""
from __future__ import annotations

import time
import types

import pytest

from tests import harness
from tests.training import local_job
from tf1ps.cluster.description import Cluster
from tf1ps.cluster.probe import TaskUnavailableError
from tf1ps.session import PartDoneError
from tf1ps.training import epochs, options


def test_a_worker_without_its_chief_waits_once():
  ps, chief, own = harness.addresses(3)
  cluster = Cluster({"ps": {0: ps}, "worker": {0: chief, 1: own}}, "worker", 1)
  run = types.SimpleNamespace(
    is_chief=False, cluster=cluster, state_tasks=cluster.ps, find_chief=lambda: None)
  began = time.monotonic()
  with pytest.raises(TaskUnavailableError, match=(
      r"the chief has sent no heartbeat after \d+ s: /job:worker/task:0 .*; /job:ps/task:0 ")):
    epochs.finished_before(run, options.Options(epochs=1, start_timeout=0.2))
  assert time.monotonic() - began >= 0.2

  def check():
    raise PartDoneError("the run has ended")

  with pytest.raises(PartDoneError):
    epochs.finished_before(run, options.Options(epochs=1, start_timeout=harness.LIMIT), check)


def test_more_epochs_begin_at_the_first_batch_where_the_last_step_had_its_checkpoint(tmp_path):
  found = [local_job.train(checkpoint_dir=str(tmp_path), epochs=epochs, batch_size=100,
                           save_checkpoints="steps:1") for epochs in (1, 2)]
  assert [(one.steps, one.global_step) for one in found] == [(4, 4), (4, 8)]
