from __future__ import annotations

import signal

import pytest

from tests import clock_tasks, cluster_tasks, harness


def serve(start, jobs, index=0):
  ps = start("ps", cluster_tasks.serve, jobs, "ps", index)
  ps.wait_for("up")
  return ps


def prove(start, jobs, timeout=clock_tasks.LIMIT):
  """Has a worker prove its paths, for which no test lasts too long; returns as `outcome_of`."""
  return outcome_of(start("worker", cluster_tasks.check_paths, jobs, timeout))


def outcome_of(worker):
  """Returns (seconds, what it says, what it logged)."""
  outcome = worker.wait_for(" s: ")
  assert worker.wait() == 0
  seconds, said = outcome.split(" s: ", 1)
  return float(seconds), said, [line for line in worker.lines if line.startswith("the path to")]


@pytest.fixture
def jobs():
  ps_0, ps_1, worker = harness.addresses(3)
  return {"ps": [ps_0, ps_1], "worker": [worker]}


def complaint(jobs, task=0):
  """(How the error begins, how it ends)."""
  return ("/job:ps/task:%d at %s answers, but no tensor gets from /job:worker/task:0 to it "
          "and back (" % (task, jobs["ps"][task]),
          "). Start it with the same cluster: it must know /job:worker/task:0 at %s."
          % jobs["worker"][0])


def test_every_way_is_open(start, jobs):
  for index in range(2):
    serve(start, jobs, index)
  _, said, logged = prove(start, jobs)
  assert said == "proved" and not logged


def test_a_ps_that_does_not_know_the_worker_is_named_at_once(start, jobs):
  serve(start, jobs)
  serve(start, {"ps": jobs["ps"]}, 1)
  _, said, logged = prove(start, jobs)
  begin, end = complaint(jobs, 1)
  assert said == begin + "No worker known as /job:worker/replica:0/task:0" + end
  assert not logged


@pytest.mark.slow
def test_a_ps_that_has_another_address_for_the_worker(start, jobs):
  serve(start, jobs)
  serve(start, dict(jobs, worker=harness.addresses(1)), 1)
  worker = start("worker", clock_tasks.run, cluster_tasks.check_paths, jobs, clock_tasks.LIMIT)
  worker.wait_for("the path to")
  with pytest.raises(AssertionError, match="^no ' s: ' within 2 s"):  # it tries again
    worker.wait_for(" s: ", 2.0)
  clock_tasks.end_patience(worker)
  _, said, logged = outcome_of(worker)
  begin, end = complaint(jobs, 1)
  assert said.startswith(begin) and said.endswith(end)
  assert all(line.startswith("the path to /job:ps/task:1 and back fails: ") for line in logged)
  # Once for each reason: the last try may end with the time, and not with a refusal.
  assert logged and all(one != other for one, other in zip(logged, logged[1:]))


def test_a_ps_that_stands_still(start, jobs):
  serve(start, jobs, 0)
  serve(start, jobs, 1).signal(signal.SIGSTOP)
  seconds, said, _ = prove(start, jobs, 1.0)
  assert said.startswith(complaint(jobs)[0]) and seconds >= 1.0


def test_a_ps_that_comes_a_moment_late(start, jobs):
  del jobs["ps"][1:]
  worker = start("worker", cluster_tasks.check_paths, jobs, 60.0)
  worker.wait_for("begins")
  serve(start, jobs)
  assert worker.wait_for(" s: ").endswith(" s: proved")
