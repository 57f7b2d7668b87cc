from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

BENCHMARK = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "synchronous.py"


@pytest.mark.slow
def test_it_compares_each_kind_and_both_synchronous_ones_learn_the_same():
  done = subprocess.run(
    [sys.executable, str(BENCHMARK), "--rounds=3", "--steps=5"], stdout=subprocess.PIPE,
    stderr=subprocess.PIPE, universal_newlines=True, timeout=150)
  assert done.returncode == 0, done.stderr
  rows = re.findall(r"^(\w+) +[\d.]+ ms a step \(([\d.]+)\), +[\d.]+ steps/s, loss ([\d.]+)$",
                    done.stdout, re.MULTILINE)
  assert [name for name, _, _ in rows] == ["stock", "ours", "async"]
  assert rows[0][1] == "1.00"
  assert abs(float(rows[0][2]) - float(rows[1][2])) < 0.001
