from __future__ import annotations

import json

import pytest

from benchmarks import recovery
from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_a_job_recovers_from_both_kills_within_its_limits(tmp_path):
  running.run("benchmarks", "recovery", "--rounds=1", "--json=%s" % (tmp_path / "rows.jsonl"))
  with open(str(tmp_path / "rows.jsonl")) as file:
    found = [json.loads(line) for line in file]
  seconds = {one["system"]: one["seconds"]["median"] for one in found}
  assert set(seconds) == {recovery.GAP, recovery.WORKER, recovery.OTHERS, recovery.PS,
                          recovery.NEW}
  # Compared on the same machine: far below the start of a program, and nobody waits for a limit.
  assert max(seconds[recovery.GAP], seconds[recovery.WORKER]) < seconds[recovery.NEW]
  assert 0.0 < seconds[recovery.OTHERS] < min(seconds[recovery.PS], seconds[recovery.NEW])
