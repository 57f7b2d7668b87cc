from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

BENCHMARK = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "queues.py"


@pytest.mark.slow
def test_it_compares_each_kind_and_prints_ratios():
  done = subprocess.run(
    [sys.executable, str(BENCHMARK), "--runs=5", "--batches=4"], stdout=subprocess.PIPE,
    stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
  assert done.returncode == 0, done.stderr
  rows = re.findall(r"^batch    4  (\w+) +put +[\d.]+ ms \(([\d.]+)\) +get +[\d.]+ ms \(([\d.]+)\)",
                    done.stdout, re.MULTILINE)
  assert [name for name, _, _ in rows] == ["enqueue_many", "put", "try_enqueue_many"]
  assert rows[0][1:] == ("1.00", "1.00")
  assert re.search(r"^arrival: median [\d.]+ ms, 95 % within", done.stdout, re.MULTILINE)
