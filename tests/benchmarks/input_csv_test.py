from __future__ import annotations

import re

import pytest

from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_it_compares_the_kinds_and_what_loading_while_training_gains():
  printed = running.run("benchmarks.input_csv", "--rounds=1", "--seconds=0.2", "--records=2000",
                        "--shuffle=100", "--steps=20", "--load_ms=1")
  rows = re.findall(r"^(\S.*?) +\d+ records/s .* ([\d.]+) x +[\d.]+ us of processor a record$",
                    printed, re.MULTILINE)
  names = [name for name, _ in rows]
  assert names[:4] == ["classic", "classic, 4 threads", "readers", "readers, 1 decoder"]
  assert names[-2:] == ["feeding", "preloaded"] and rows[0][1] == "1.0"
  # The same batches in the same order, whoever has loaded them.
  losses = re.findall(r"^loading .* last loss ([\d.]+)$", printed, re.MULTILINE)
  assert len(losses) == 2 and losses[0] == losses[1]
