"""What is said of a worker without which the others cannot make a step."""
from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task
from tf1ps.replication import peers
from tf1ps.session import mirrored_sessions
from tf1ps.state import heartbeat


def part_of(state, reason):
  """A participation in which worker 1 last said this of itself."""
  member = heartbeat.Member(
    "worker", 1, "worker", "here", 1, "run", state, 0, 0, 0, reason, 0.0)
  return types.SimpleNamespace(run_id="run", heartbeat=types.SimpleNamespace(
    beat=lambda: None, members=lambda: [member]))


def says(part, before):
  """The error's text where a step ends because somebody else has left."""
  cancelled = tf.errors.CancelledError(None, None, "cancelled")
  return str(mirrored_sessions.explain(part, before, cancelled))


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_worker_that_was_started_again_is_lost_whatever_the_new_one_says(
    start, is_started_again):
  jobs = {"worker": harness.addresses(2)}
  task = Task("worker", 1, jobs["worker"][1])
  first = start("first", cluster_tasks.serve, jobs, "worker", 1)
  before = probe.wait_for_tasks([task], 20.0)
  failed = part_of(heartbeat.MEMBER_FAILED, "a step was ended by another worker")
  assert "a step was ended by another worker" in says(
    part_of(heartbeat.MEMBER_TRAINING, ""), before
  )
  first.kill()
  if is_started_again:
    start("second", cluster_tasks.serve, jobs, "worker", 1)
    harness.wait_until(lambda: probe.probe_task(task).is_up)
    expected = "lost /job:worker/task:1 at %s: it was started again; start all" % task.address
  else:  # what it said is why
    expected = "/job:worker/task:1 failed: a step was ended by another worker; start all"
  assert says(failed, before).startswith(expected)
  assert isinstance(mirrored_sessions.lost(failed, before), peers.PeerLostError)
