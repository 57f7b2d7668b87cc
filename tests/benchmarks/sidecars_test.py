from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmarks import systems
from tests import needs
from tf1ps.links import NamespaceError, check_namespaces

pytestmark = pytest.mark.any_tensorflow


@pytest.mark.slow
def test_each_kind_carries_bytes():
  try:
    check_namespaces()
  except NamespaceError as error:
    needs.skip("namespaces", error)
  done = subprocess.run(
    [sys.executable, "-m", "benchmarks.sidecars", "--rounds=1", "--seconds=0.02"],
    cwd=systems.ROOT, stdout=subprocess.PIPE, universal_newlines=True, timeout=150, check=True)
  lines = done.stdout.splitlines()
  assert lines[1].startswith("| bytes each way | plain | sidecars | asyncio |")
  assert [line.split()[1] for line in lines[3:]] == ["200", "40000", "1000000", "8000000"]
  assert all(re.match(r"\| \d+ (\| \d+ \(\d+ to \d+\) )+\|$", line) for line in lines[3:])
