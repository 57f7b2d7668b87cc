from __future__ import annotations

import re

import pytest

from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_it_compares_each_kind_and_both_synchronous_ones_learn_the_same():
  printed = running.run("synchronous", "--rounds=3", "--steps=5")
  rows = re.findall(r"^(\w+) +[\d.]+ ms a step \(([\d.]+)\), +[\d.]+ steps/s, loss ([\d.]+)$",
                    printed, re.MULTILINE)
  assert [name for name, _, _ in rows] == ["stock", "ours", "async"]
  assert rows[0][1] == "1.00"
  assert abs(float(rows[0][2]) - float(rows[1][2])) < 0.001
