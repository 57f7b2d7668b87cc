from __future__ import annotations

import re

import pytest

from tests.benchmarks import running


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_it_compares_the_kinds():
  printed = running.run("benchmarks.input_csv", "--rounds=1", "--seconds=0.2", "--records=2000",
                        "--shuffle=100")
  rows = re.findall(r"^(\S.*?) +\d+ records/s .* ([\d.]+) x +[\d.]+ us of processor a record$",
                    printed, re.MULTILINE)
  assert [name for name, _ in rows] == [
    "classic", "classic, 4 threads", "tf.data, map then batch", "tf.data, batch then map",
    "datasets"]
  assert rows[0][1] == "1.0"
