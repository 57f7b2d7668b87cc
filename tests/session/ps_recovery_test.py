"""A ps is lost and comes back: what is restored, what nobody sees, and when the job ends."""
from __future__ import annotations

import re
import time

import pytest

from tests import harness
from tests.training.job import Job, codes, find, steps, wait_for_step
from tf1ps.checkpoint import checkpoints
from tf1ps.state import RUN_FAILED, RunFile


def lose(job, ps, index, workers, steps_more=30):
  """Kills a ps after some steps, and starts it again; returns (the last step, lines per worker)."""
  before = wait_for_step(workers[0], (steps(workers[0]) or [(0,)])[-1][0] + steps_more)
  ps[index].kill()
  since = [len(worker.lines) for worker in workers]
  ps[index] = job.trainer_ps(index)
  return before, since


@pytest.mark.slow
def test_nobody_sees_a_half_restored_state(start, tmp_path):
  go_on = str(tmp_path / "go on")
  job = Job(start, num_ps=2, num_workers=3, step_seconds=0.01, save_steps=20,
            checkpoint_dir=str(tmp_path / "model"))
  ps = [job.trainer_ps(0), job.trainer_ps(1)]
  chief, worker = job.trainer(0, restore_until=go_on), job.trainer(1)
  wait_for_step(worker, 60)
  before, (_, since) = lose(job, ps, 1, [chief, worker])
  chief.wait_for("holds the restore")
  late = job.trainer(2)  # it comes in the middle of the restore
  late.wait_for("waiting for the chief")
  assert not steps(late) and all(step.number <= before + 20 for step in steps(worker))
  lines = len(worker.lines)
  open(go_on, "w").close()
  chief.wait_for("recovered")
  restored, = find(chief, r"restored .*/model.ckpt-(\d+)")
  for task in (chief, worker, late):
    wait_for_step(task, restored + 60)
  seen = [line for line in worker.lines[since:lines] if line.startswith("step ")]
  assert len(seen) <= 1, seen  # the step that was under way
  for task in (chief, late):
    assert all(abs(step.even - step.number) <= 4 and abs(step.odd - step.number) <= 4
               for step in steps(task)), task.output


@pytest.mark.slow
@pytest.mark.parametrize("index", [1, 0])
def test_the_other_ps_may_keep_their_newer_values(start, tmp_path, index):
  # The global step and `odd` lie on ps 0, `even` on ps 1.
  job = Job(start, num_ps=2, step_seconds=0.01, checkpoint_dir=str(tmp_path),
            ps_recovery="lost_only")
  ps = [job.trainer_ps(0), job.trainer_ps(1)]
  workers = [job.trainer(0), job.trainer(1)]
  before, since = lose(job, ps, index, workers, 60)  # the only checkpoint is the first one
  for worker, lines in zip(workers, since):
    worker.wait_for("recovered", since=lines)
  chief = workers[0]
  recovered = next(i for i, line in enumerate(chief.lines) if "recovered" in line)
  numbers = [int(each) for each in chief.wait_for("step ", since=recovered).split()[1:4]]
  chief.wait_for("the state of /job:ps/task:%d is lost, and so are its updates after %s. The "
                 "other ps keep their newer values" % (index, tmp_path / "model.ckpt-0"))
  values = dict(zip(("number", "even", "odd"), numbers))
  lost = {name for name, value in values.items() if value < before}
  kept = {name for name, value in values.items() if value >= before}
  saved = checkpoints.global_step_of_checkpoint(str(tmp_path / "model.ckpt-0"))
  said = "the job goes back to step %d: " % saved in chief.output
  assert lost and kept and said == ("number" in lost), (values, chief.output)
  count, = find(chief, r"restored (\d+) variables of /job:ps/task:%d from " % index)
  assert count == len(lost)
  for each in ps:
    each.kill()  # nothing is kept: all is restored
  since = len(chief.lines)
  ps = [job.trainer_ps(0), job.trainer_ps(1)]
  chief.wait_for("recovered", since=since)
  assert any("restored %s" % tmp_path in line for line in chief.lines[since:])


def test_a_ps_that_stays_away_is_named_everywhere(start, tmp_path):
  job = Job(start, num_ps=2, step_seconds=0.01, checkpoint_dir=str(tmp_path), recovery_timeout=6.0,
            heartbeat_timeout=3.0)
  ps = [job.trainer_ps(0), job.trainer_ps(1)]
  workers = [job.trainer(0), job.trainer(1)]
  for worker in workers:
    wait_for_step(worker, 20)
  ps[1].kill()
  killed = time.monotonic()  # the processes have the same clock
  name = "/job:ps/task:1 at %s" % job.jobs["ps"][1]
  assert codes(*workers) == [1, 1]
  for worker in workers:
    line = worker.wait_for("the cluster did not come back (--heartbeat_timeout) after")
    assert name in line and float(re.search(r"after (\d+) s", line).group(1)) >= 6
  # At most the step under way: nobody trains on with the other ps alone.
  assert sum(step.time > killed for step in steps(workers[0])) <= 1
  assert ps[0].wait() == 1
  assert name in ps[0].output
  status = RunFile(str(tmp_path)).read()
  assert status.state == RUN_FAILED and name in status.reason
  assert checkpoints.latest_checkpoint(str(tmp_path))


@pytest.mark.slow
def test_the_last_line_has_the_steps_that_were_lost(start, tmp_path):
  job = Job(start, flags=["--steps=200", "--batch_size=4", "--step_seconds=0.02",
                          "--checkpoint_dir=%s" % tmp_path, "--ps_recovery=lost_only",
                          "--heartbeat_timeout=5:60"])
  (ps,), (chief, worker) = job.all()
  harness.wait_until(lambda: re.findall(r"progress: step ([5-9]\d) ", chief.output))
  ps.kill()
  ps = job.ps()
  assert codes(chief, worker, ps) == [0, 0, 0]
  # The other worker may have made a few steps before that checkpoint was written.
  back, lost = find(chief, r"the job goes back to step (\d+): (\d+) steps are lost")
  assert back == checkpoints.global_step_of_checkpoint(str(tmp_path / "model.ckpt-0"))
  assert ", %d steps rolled back, " % lost in chief.last_line and 50 <= back + lost < 200


def test_synchronous_updates_are_restored_as_a_whole():
  from tf1ps.training import Options, check_options
  with pytest.raises(ValueError, match="--ps_recovery=lost_only applies to asynchronous updates"):
    check_options(Options(steps=1, ps_recovery="lost_only", sync_replicas=True))
