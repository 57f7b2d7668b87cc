from __future__ import annotations

import re

import pytest

from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_it_compares_the_schemes_and_says_what_the_straggler_did():
  printed = running.run("straggler", "--rounds=1", "--minibatches=30")
  rows = re.findall(r"^(\w[^\n]*?) +[\d.]+ steps/s \( *[\d.]+\) +[\d.]+ minibatches/s +test loss "
                    r"[\d.]+ +(worker 0.*)$", printed, re.MULTILINE)
  assert [name for name, _ in rows] == ["sync", "sync, one spare", "async", "async, max_lead=2"]
  assert "staleness" in rows[2][1] and "lead" in rows[3][1]
