from __future__ import annotations

import re

import pytest

from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_it_compares_steps_with_and_without_the_reads():
  printed = running.run("benchmarks.staleness", "--blocks=2", "--steps=5")
  rows = re.findall(r"^(\w+) +[\d.]+ steps/s \(([\d.]+)\) +loss [\d.]+ after 30 minibatches$",
                    printed, re.MULTILINE)
  assert [kind for kind, _ in rows] == ["plain", "measured"] and rows[0][1] == "1.000"
  assert len(re.findall(r"^worker \d: staleness [\d.]+ \(\d+ at most\)$", printed,
                        re.MULTILINE)) == 2
