"""tf1ps-local starts failed tasks again, and says what stalled ones wait for; by real processes."""
from __future__ import annotations

import os
import re
import signal

import pytest

from tests import harness, program_tasks
from tests.cli.commands import LINE

LIMIT = 2 * harness.LIMIT


@pytest.fixture
def launch(start, tmp_path):
  """Starts launchers with restarts; returns their `harness.Task`s."""
  return lambda *args: start(
    "tf1ps-local", program_tasks.run_program, "tf1ps-local",
    [LINE, "--restart=on_failure", "--log_dir=" + str(tmp_path / "logs"), *args], tmp_path)


def restarts_in(lines):
  """The tasks that the launcher has started again, in order, and why."""
  return [tuple(found.groups()) for found in (re.match(
    r"tf1ps-local: (\w+ \d) (.*?) \(.*restart \d of \d (?:at once|in [\d.]+ s)$", line)
    for line in lines) if found]


@pytest.mark.job
@pytest.mark.slow
def test_a_job_outlives_the_kill_of_each_task(launch, tmp_path):
  launcher = launch(
    "--num_ps=2", "--num_workers=2", "--evaluator", "--steps=1000000", "--step_seconds=0.02",
    "--checkpoint_dir=" + str(tmp_path / "model"), "--save_checkpoints=secs:1",
    "--stop_when=" + str(tmp_path / "stop"))
  launcher.wait_for("progress: step", LIMIT)
  pids = dict(re.findall(r"(\w+ \d) \(process (\d+)\)", launcher.output))
  for name, sign in (("ps 1", "recovered: session"), ("worker 0", "live state"),
                     ("worker 1", "joined run"), ("evaluator 0", "[evaluator 0] ")):
    since = len(launcher.lines)
    os.kill(int(pids[name]), signal.SIGKILL)
    launcher.wait_for("%s was killed by SIGKILL" % name, LIMIT, since)
    launcher.wait_for(sign, LIMIT, since)
    launcher.wait_for("progress: step", LIMIT, len(launcher.lines))
  (tmp_path / "stop").write_text("")
  assert launcher.wait(LIMIT) == 0, launcher.output
  assert restarts_in(launcher.lines) == [
    (name, "was killed by SIGKILL") for name in ("ps 1", "worker 0", "worker 1", "evaluator 0")]
  assert ", 2 workers and 1 evaluator, 4 restarts, " in launcher.last_line
  for name in ("ps-1", "worker-0", "worker-1", "evaluator-0"):
    log = (tmp_path / "logs" / (name + ".log")).read_text()
    assert len(re.findall(r"^---- .*, process \d+, started ", log, re.MULTILINE)) == 2


@pytest.mark.slow
def test_a_crash_loop_ends_with_its_first_failure(launch):
  launcher = launch("--num_workers=1", "--steps=100", "--fail_in=step", "--restart=on_failure:2")
  assert launcher.wait(LIMIT) == 1
  lines = launcher.lines
  assert [name for name, _ in restarts_in(lines)] == ["worker 0"] * 2
  first, = [i for i, line in enumerate(lines) if "last lines of the first failure" in line]
  last_words = [line for line in lines if line.startswith("[worker 0] ") and "exit code 1" in line]
  assert len(last_words) == 3 and "a bad record" in last_words[0]
  assert lines[-2] == "tf1ps-local:   " + last_words[0][len("[worker 0] "):]
  assert re.match(r"tf1ps-local: failed: worker 0 ended with exit code 1 \(.*a bad record.*"
                  r", after 2 restarts; logs in |tf1ps-local: failed: worker 0 ended with .*"
                  r"after 2 restarts, ", lines[-1])
  assert first > lines.index(last_words[-1])


@pytest.mark.slow
def test_an_error_of_the_program_before_its_first_step_ends_the_job(launch):
  launcher = launch("--num_workers=1", "--steps=100", "--fail_in=model")
  assert launcher.wait(LIMIT) == 1
  assert restarts_in(launcher.lines) == []
  assert "no model today" in launcher.last_line


@pytest.mark.slow
def test_who_waits_for_whom(launch, tmp_path):
  launcher = launch(
    "--num_workers=2", "--steps=20", "--sync_replicas", "--block_at=5", "--slow_index=1",
    "--block_until=" + str(tmp_path / "go"), "--stall_after=4")
  launcher.wait_for("[worker 1] holds step 5", LIMIT)
  since = len(launcher.lines)
  launcher.wait_for("tf1ps-local: stalled tasks:", LIMIT, since)
  for_whom = launcher.wait_for("tf1ps-local:   worker 0  ", LIMIT, since)
  for_what = launcher.wait_for("tf1ps-local:   worker 1  ", LIMIT, since)
  (tmp_path / "go").write_text("")
  assert launcher.wait(LIMIT) == 0, launcher.output
  assert "it waits for the gradient of /job:worker/task:1" in for_whom
  assert re.search(r"line\.py:\d+ in _wait_for", for_what)
  stacks = [line for line in launcher.lines[since:] if "the threads of this process" in line]
  assert {line.split(":")[0][:10] for line in stacks} == {"[worker 1]"}  # not of worker 0
  assert restarts_in(launcher.lines) == []


@pytest.mark.slow
def test_a_stalled_worker_is_given_up_and_started_again(launch, tmp_path):
  launcher = launch(
    "--num_workers=2", "--steps=1000000", "--step_seconds=0.02", "--block_at=5", "--slow_index=1",
    "--block_until=" + str(tmp_path / "go"), "--stop_when=" + str(tmp_path / "stop"),
    "--stall_after=5:fail")  # so that no other worker stalls, on a busy machine
  launcher.wait_for("worker 1 ended with exit code 1", LIMIT)
  (tmp_path / "go").write_text("")
  since = len(launcher.lines)
  launcher.wait_for("joined run", LIMIT, since)
  for _ in range(3):  # until the chief knows that worker 1 is back
    launcher.wait_for("progress: step", LIMIT, len(launcher.lines))
  (tmp_path / "stop").write_text("")
  assert launcher.wait(LIMIT) == 0, launcher.output
  assert restarts_in(launcher.lines)[0] == ("worker 1", "ended with exit code 1")
  last, = [line for line in launcher.lines
           if line.startswith("[worker 1] worker 1: ") and "exit code 1" in line]
  assert re.search(r"StalledError: no step for \d+ s \(--stall_after with :fail\): it waits "
                   r"for .*, exit code 1$", last)


@pytest.mark.slow
def test_a_worker_that_fails_while_the_chief_waits_at_the_end_is_started_again(launch, tmp_path):
  launcher = launch(
    "--num_workers=2", "--examples=400", "--block_at=5", "--slow_index=1",
    "--block_until=" + str(tmp_path / "go"), "--stall_after=5:fail")
  launcher.wait_for("The chief waits 30 s (--heartbeat_timeout) for its restart", LIMIT)
  (tmp_path / "go").write_text("")
  assert launcher.wait(LIMIT) == 0, launcher.output
  assert restarts_in(launcher.lines) == [("worker 1", "ended with exit code 1")]
