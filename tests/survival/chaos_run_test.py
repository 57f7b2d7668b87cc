"""Short chaos runs: of tf1ps, which must hold, and of what is broken, which must not."""
from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLS_A_PS = 4  # a seed whose first fault is the kill of a ps
KILLS_A_PS_AT_THE_END = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run_chaos(tmp_path, *arguments):
  """Returns the exit code, the report, and {(job, validator): whether it holds}."""
  environment = {name: value for name, value in os.environ.items() if name != "TF1PS_TIMING"}
  done = subprocess.run(
    [sys.executable, "-m", "tools.chaos", "run", "--history=%s" % (tmp_path / "history.jsonl"),
     *arguments], cwd=str(ROOT), env=environment, stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT, universal_newlines=True, timeout=170)
  holds = {found[:2]: found[2] != "**fails**" for found in re.findall(
    r"^\| (\w+) \| ([\w ]+) \| (holds|\*\*fails\*\*|–) \|", done.stdout, re.MULTILINE)}
  return done.returncode, done.stdout, holds


def test_a_job_survives(tmp_path):
  code, report, holds = run_chaos(tmp_path, "--seconds=30", "--seed=22", "--world=pids")
  assert code == 0, report
  assert len(holds) == 16 and all(holds.values())
  assert int(re.search(r"^(\d+) injections", report, re.MULTILINE).group(1)) >= 3


@pytest.mark.any_tensorflow
def test_what_is_broken_is_found(tmp_path):
  code, report, holds = run_chaos(
    tmp_path, "--seconds=16", "--seed=%d" % KILLS_A_PS, "--faults=kill", "--wait_limit=30",
    "--world=one", "--breaks=token,range,checkpoint")
  assert code == 1
  assert not holds["async", "updates"], report  # checkpoint
  assert not holds["async", "examples"], report  # range
  assert not holds["sync", "waits"], report  # token
  assert holds["async", "queue"] and holds["async", "exit codes"], report


def test_a_stock_job_fails_where_ours_holds(tmp_path):
  verdicts = {}
  for kind in ("tf1ps", "stock"):
    (tmp_path / kind).mkdir()
    code, report, holds = run_chaos(
      tmp_path / kind, "--kind=" + kind, "--seconds=8", "--modes=async", "--faults=kill",
      "--wait_limit=30", "--world=one", "--seed=%d" % KILLS_A_PS_AT_THE_END)
    assert code == (kind == "stock"), report
    verdicts[kind] = {name for (_, name), good in holds.items() if not good}
  assert verdicts["tf1ps"] == set()
  # The job does not recover, its ps never end, and the chief goes back without a word.
  assert {"waits", "exit codes"} <= verdicts["stock"], report
