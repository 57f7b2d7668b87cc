from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"\|\[([\w/]+\.py)\]\(\.\./tests/([\w/]+\.py)\) `(test_\w+)`\|")

pytestmark = pytest.mark.any_tensorflow


def test_each_defect_has_a_test_that_exists():
  page = (ROOT / "docs" / "survival.md").read_text(encoding="utf-8")
  table = page.partition("## The track record")[2].partition("### Open")[0].splitlines()
  rows = [line for line in table if line.startswith("|")][2:]
  assert len(rows) > 20
  for row in rows:
    shown, path, name = ROW.search(row).groups()
    assert shown == path
    assert "def %s(" % name in (ROOT / "tests" / path).read_text(encoding="utf-8"), row
    assert row.count("|") == 6
