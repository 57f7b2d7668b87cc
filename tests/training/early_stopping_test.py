"""The evaluator's request ends a job under each replication, for all tasks, with the reason."""
from __future__ import annotations

import re

import pytest

from tests import harness
from tests.cli import commands
from tests.training import local_job
from tests.training.job import PROGRAM, Job, codes
from tf1ps.checkpoint import checkpoints
from tf1ps.state import run, run_status
from tf1ps.training import stops

REASON = "early stopping: accuracy has not improved for 3 evaluations"


def ask_for_end(directory):
  """Writes the evaluator's request once the run makes steps."""
  status = run.RunFile(str(directory))
  harness.wait_until(lambda: status.read() is not None and status.read().global_step > 5)
  run.StopFile(str(directory)).write(status.read().run, REASON)


@pytest.mark.slow
@pytest.mark.parametrize("flags, num_ps", [
  ([], 1),
  pytest.param(["--overlap=2"], 1, marks=pytest.mark.slow),
  pytest.param(["--sync_replicas"], 1, marks=pytest.mark.slow),
  pytest.param(["--sync_replicas", "--on_uneven=shrink"], 1, marks=pytest.mark.slow),
  pytest.param(["--replication=in_graph", "--sync_replicas"], 1, marks=pytest.mark.slow),
  pytest.param(["--replication=in_graph"], 1, marks=pytest.mark.slow),
  (["--replication=all_reduce"], 0)])
def test_every_task_ends_with_0_and_the_reason(start, tmp_path, flags, num_ps):
  run.StopFile(str(tmp_path)).write("an earlier run", "it must not end this one")
  job = Job(start, num_ps, 2, flags=[
    *flags, "--steps=100000000", "--checkpoint_dir=%s" % tmp_path])
  ps, workers = job.all()
  ask_for_end(tmp_path)
  assert codes(*workers, *ps) == [0] * (2 + num_ps)
  for task in workers + ps:
    assert REASON in task.last_line and task.last_line.endswith(", exit code 0"), task.last_line
  status = run.RunFile(str(tmp_path)).read()
  assert status.state == run_status.RUN_ENDED
  last = checkpoints.latest_checkpoint(str(tmp_path))
  assert checkpoints.global_step_of_checkpoint(last) == status.global_step


@pytest.mark.slow
def test_a_stopped_job_that_is_started_again_trains_on(tmp_path, set_timing):
  set_timing(stops, poll_interval=0.01)
  run.StopFile(str(tmp_path)).write("an earlier run", REASON)
  outcome = local_job.train(checkpoint_dir=str(tmp_path), steps=20, batch_size=40)
  assert (outcome.global_step, outcome.reason) == (20, "reached --steps=20")


@pytest.mark.slow
def test_the_evaluator_of_a_local_job_ends_it_and_keeps_the_best(start, tmp_path):
  code, lines = commands.run(
    start, "tf1ps-local", PROGRAM, "--checkpoint_dir=%s" % tmp_path, "--evaluator",
    "--steps=100000000", "--save_checkpoints=secs:0.2", "--keep_best=loss:2",
    "--learning_rate=0.1", "--log_dir=%s" % (tmp_path / "logs"))
  assert code == 0, "\n".join(lines)
  # The evaluator may count one more before the chief reads its request.
  reason = re.compile(r"early stopping: loss has not improved for \d+ evaluations")
  for task in ("worker 0", "worker 1", "evaluator"):
    assert any(task in line and reason.search(line) for line in lines), (task, lines)
  assert reason.search((tmp_path / "logs" / "ps-0.log").read_text())
  best = checkpoints.latest_checkpoint(str(tmp_path / "best"))
  checkpoints.verify_checkpoint(best)


@pytest.mark.parametrize("flag", ["--keep_best=loss", "--keep_best=loss:2"])
def test_a_local_job_without_evaluator_refuses_it(start, flag):
  code, lines = commands.run(start, "tf1ps-local", PROGRAM, "--steps=5", flag)
  assert code == 1
  assert "needs --evaluator, whose evaluations it follows" in lines[-1]
