from __future__ import annotations

import re

import pytest

from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_it_compares_each_kind_and_prints_ratios():
  printed = running.run("benchmarks.queue_timeout", "--runs=5", "--batches=4")
  rows = re.findall(r"^batch    4  (\w+) +put +[\d.]+ ms \(([\d.]+)\) +get +[\d.]+ ms \(([\d.]+)\)",
                    printed, re.MULTILINE)
  assert [name for name, _, _ in rows] == ["enqueue_many", "put", "try_enqueue_many"]
  assert rows[0][1:] == ("1.00", "1.00")
  assert re.search(r"^arrival: median [\d.]+ ms, 95 % within", printed, re.MULTILINE)
