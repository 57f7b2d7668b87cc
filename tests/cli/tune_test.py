from __future__ import annotations

import glob
import os
import re
import tempfile

import pytest

from tests import docs_test
from tests.cli import commands
from tf1ps.cli import tune
from tf1ps.training import options


@pytest.mark.parametrize("flags, said", [
  (["--num_workers=0"], "--num_workers=0: a job needs at least one worker"),
  (["--overlap=prefetch", "--sync_replicas"],
   "--overlap=prefetch applies to asynchronous updates: it needs "),
  (["--replication=all_reduce", "--num_ps=1"], "--num_ps=1: --replication=all_reduce has no ps")])
def test_bad_flags_are_refused_before_any_work(start, flags, said):
  code, lines = commands.run(start, "tf1ps-tune", commands.LINE, *flags)
  assert code == 1 and lines[-1].startswith("tf1ps-tune: " + said), lines


@pytest.mark.slow
def test_the_documented_call_with_one_option(start, tmp_path):
  """The user's own checkpoints are not touched, and the end of their job is no end here."""
  (tmp_path / "examples").symlink_to(docs_test.ROOT / "examples")
  arguments, = docs_test.of_program("docs/monitoring.md", "tf1ps-tune")
  task = start("tune", commands.tune_two, [
    *arguments, "--checkpoint_dir=checkpoints", "--epochs=1"], str(tmp_path))
  assert task.wait(170) == 0, task.output
  assert re.match(r"tf1ps-tune: tries 1 options and then their combinations, for 180 s at most",
                  task.lines[0])
  table = task.lines[1:4]
  assert table[0].split()[0] == "ratio", task.output
  assert {line.rpartition("  ")[2] for line in table[1:]} == {
    "your flags", "--steps_per_execution=4"}
  assert re.search(r"^use: .* \([\d.]+ times\)$", task.output, re.MULTILINE)
  assert re.match(r"tf1ps-tune: \d+ s, exit code 0$", task.last_line)
  assert not glob.glob(os.path.join(tempfile.gettempdir(), "tf1ps-tune-*.%d.tmp" % task.pid))
  assert sorted(path.name for path in tmp_path.iterdir()) == ["examples"]


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("new, count, start_seconds, part, seconds", [
  (9, 9, 2.0, 0.6, 70), (9, 9, 10.0, 0.6, 200), (3, 6, 20.0, 0.4, 200)])
def test_the_seconds_that_would_do_leave_time_for_all_starts(
    new, count, start_seconds, part, seconds):
  found = tune.enough_seconds(new, count, start_seconds, part)
  assert found == seconds
  # As a stage divides its time.
  window = max(part * found / 2, part * found - tune._LEAST_ROUNDS * tune._TURN_TAKES * count)
  assert window >= new * start_seconds


def test_a_measured_job_has_the_tasks_that_the_user_asks_for():
  assert tune._job_flags(["--num_ps=2", "--num_workers=3", "--steps=5", "--batch_size=8"]) == [
    "--num_ps=2", "--num_workers=3", "--batch_size=8"]
  assert set(tune._KEPT) <= {option.group for option in options.TABLE}
