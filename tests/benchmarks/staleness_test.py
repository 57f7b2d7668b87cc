from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

BENCHMARK = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "staleness.py"


@pytest.mark.slow
def test_it_compares_steps_with_and_without_the_reads():
  done = subprocess.run(
    [sys.executable, str(BENCHMARK), "--blocks=2", "--steps=5"], stdout=subprocess.PIPE,
    stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
  assert done.returncode == 0, done.stderr
  rows = re.findall(r"^(\w+) +[\d.]+ steps/s \(([\d.]+)\) +loss [\d.]+ after 30 minibatches$",
                    done.stdout, re.MULTILINE)
  assert [kind for kind, _ in rows] == ["plain", "measured"] and rows[0][1] == "1.000"
  assert len(re.findall(r"^worker \d: staleness [\d.]+ \(\d+ at most\)$", done.stdout,
                        re.MULTILINE)) == 2
