"""Jobs with a policy for stale gradients, as a user starts them: real processes."""
from __future__ import annotations

import re

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training.job import Job, codes, find, last_line
from tf1ps.cluster import bounded
from tf1ps.cluster import session as session_lib
from tf1ps.replication import clocks as clocks_lib

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples(.*), "
        r"[\d.]+ s, (.*), exit code (\d)")
LEAD = r"lead (\d+) at most \(waited ([\d.]+) s\)"


class Look(object):
  """Looks at the clocks on the ps of a job in the container "job", from this process."""

  def __init__(self, job):
    self._graph = tf.Graph()
    with self._graph.as_default(), self._graph.container("job"), tf.device("/job:ps/task:0"):
      self._clocks = clocks_lib.Clocks(
        tf.train.get_or_create_global_step(), len(job.jobs["worker"]), 0)
    self._session = session_lib.BoundedSession(
      "grpc://" + job.jobs["ps"][0], self._graph, tf.ConfigProto(device_filters=["/job:ps"]))

  def __call__(self):
    """The clocks; None before they are there, when the job has ended, or on a busy machine."""
    try:
      return bounded.call_within(2.0, "a look", self._clocks.look, self._session)
    except (tf.errors.OpError, bounded.LimitExceeded):  # the ps leaves in the middle of a look
      return None


@pytest.mark.slow
def test_nobody_leads_by_more_than_max_lead(start):
  job = Job(start, num_workers=3, flags=[
    "--staleness_policy=max_lead:2", "--steps=30", "--batch_size=4", "--container=job"])
  ps = job.ps()
  workers = [job.worker(i, "--slow_index=2", "--step_seconds=0.2") for i in range(3)]
  ps.wait_for("serving at")
  look, seen = Look(job), []

  def have_ended():
    view = look()
    if view is not None:
      seen.append(max(view.lead(i) for i in range(3)))
    return not any(worker.is_running for worker in workers)

  harness.wait_until(have_ended, what="the end of the workers")
  assert codes(*workers, ps) == [0] * 4
  assert max(seen) == 2 and len(seen) > 20
  leads = [find(worker, LEAD) for worker in workers]
  assert [lead[0] for lead in leads[:2]] == [2, 2] and leads[2][0] <= 2
  assert float(leads[0][1]) > 1 and float(leads[1][1]) > 1  # seconds waited
  assert sum(last_line(worker, LAST)[0] for worker in workers) in range(30, 33)


@pytest.mark.slow
def test_a_killed_straggler_is_not_waited_for_and_comes_back(start, tmp_path):
  gate = tmp_path / "gate"
  until_gate = "--block_until=%s" % gate
  job = Job(start, num_workers=3, heartbeat_timeout=4.0, flags=[
    "--staleness_policy=max_lead:2", "--steps=260", "--batch_size=4", "--container=job"])
  ps = job.ps()
  chief = job.worker(0, "--slow_index=0", "--block_at=80", until_gate)
  other = job.worker(1)
  straggler = job.worker(2, "--slow_index=2", "--block_at=10")
  straggler.wait_for("holds step 10")
  straggler.kill()
  # The others go on without it, and it comes back to the clock of the slowest of them.
  chief.wait_for("holds step 80")
  look = Look(job)
  harness.wait_until(lambda: harness.wait_until(look).lead(1, [clocks_lib.ACTIVE]) == 2)
  again = job.worker(2, "--slow_index=2", "--block_at=1", until_gate)
  again.wait_for("holds step 1")
  view = harness.wait_until(look)
  assert view.states == [clocks_lib.ACTIVE] * 3
  assert view.clocks[2] == view.clocks[0] == view.clocks[1] - 2 >= 75
  gate.write_text("")
  assert codes(chief, other, again, ps) == [0] * 4
  told = [line for one in (chief, other) for line in one.lines if "do not wait for it" in line]
  assert any("/job:worker/task:2 is lost: silent for" in line for line in told) and len(told) <= 2
  assert [find(one, LEAD)[0] for one in (chief, other)] == [2, 2]


@pytest.mark.slow
def test_a_signal_ends_the_wait_for_the_slowest(start):
  job = Job(start, flags=["--staleness_policy=max_lead:1", "--steps=1000000", "--container=job"])
  ps, chief = job.ps(), job.worker(0)
  slow = job.worker(1, "--slow_index=1", "--block_at=3")
  slow.wait_for("holds step 3")
  look = Look(job)
  harness.wait_until(lambda: harness.wait_until(look).lead(0) == 1)
  chief.signal()
  assert chief.wait() == 128 + 15
  assert "leaving by force" not in chief.output
  slow.kill()
  ps.kill()


@pytest.mark.slow
def test_old_gradients_are_dropped_and_counted(start, tmp_path):
  job = Job(start, num_workers=3, flags=[
    "--staleness_policy=drop:2", "--steps=100", "--batch_size=4"])
  gates = [tmp_path / "chief", tmp_path / "straggler"]
  ps = job.ps()
  chief = job.worker(0, "--slow_index=0", "--block_at=1", "--block_until=%s" % gates[0])
  straggler = job.worker(2, "--slow_index=2", "--block_at=2", "--block_until=%s" % gates[1])
  straggler.wait_for("holds step 2")
  gates[0].write_text("")  # the others make their steps while it computes its second gradient
  workers = [chief, job.worker(1), straggler]
  assert workers[1].wait() == 0, workers[1].output
  gates[1].write_text("")
  assert codes(*workers, ps) == [0] * 4
  applied = 0
  for worker in workers:
    steps, examples, text, _, _ = last_line(worker, LAST)
    late = re.search(r"(\d+) more examples came too late", text)
    dropped = re.search(r"(\d+) gradients? dropped \(--staleness_policy=drop:2\)", text)
    dropped = int(dropped.group(1)) if dropped else 0
    assert (int(late.group(1)) if late else 0) == 4 * dropped
    assert examples == 4 * (steps - dropped)
    ages = re.search(r"staleness [\d.]+ \((\d+) at most\)", text)
    assert ages is None or int(ages.group(1)) <= 2
    applied += steps - dropped
  assert find(workers[0], r"global step (\d+) in ") == [applied]
  assert "1 gradient dropped" in straggler.output


@pytest.mark.slow
def test_all_policies_work_together(start):
  job = Job(start, num_ps=2, num_workers=3, flags=[
    "--staleness_policy=max_lead:3,drop:4,damp,warm_up:20",
    "--batch_size=8,4,2", "--steps=150", "--optimizer=adam", "--clip_norm=1"])
  ps, workers = job.all()
  assert codes(*workers, *ps) == [0] * 5
  for worker, size in zip(workers, (8, 4, 2)):
    steps, examples, text, reason, _ = last_line(worker, LAST)
    late = re.search(r"(\d+) more examples came too late", text)
    assert examples + (int(late.group(1)) if late else 0) <= size * steps
    assert reason == "reached --steps=150"
    lead, = re.findall(r"lead (\d+) at most", text)
    assert int(lead) <= 3
  assert 150 <= find(workers[0], r"global step (\d+) in ")[0] < 153
