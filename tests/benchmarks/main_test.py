"""One comparison as a whole; `make bench-quick` runs one of every kind."""
from __future__ import annotations

import re

import pytest

from benchmarks import rows
from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_lines_that_learn_the_same_are_compared_with_the_classic_script(tmp_path):
  path = str(tmp_path / "rows.jsonl")
  printed = running.run(
    "benchmarks", "manyvars_L", "--quick", "--only=nothing packed", "--json=" + path)
  classic, packed = rows.read(path)
  assert rows.incomplete([classic, packed]) == []
  assert [classic["system"], packed["system"]] == ["classic", "tf1ps, nothing packed"]
  assert classic["ratio_to_classic"] == 1 and packed["minibatches"] == 16
  assert packed["eval_loss"] == pytest.approx(classic["eval_loss"], abs=1e-6)
  # 10 matrices of 16x16 floats come and go with each step.
  assert min(classic["bytes_per_step"], packed["bytes_per_step"]) > 2 * 10 * 1024
  assert re.search(r"^\| V10 \| loopback \| classic \| `--variables=ref` \|", printed, re.MULTILINE)
  assert "no figure means anything" in printed
