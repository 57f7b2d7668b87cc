from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"\| \[([\w/]+\.py)\]\(\.\./tests/([\w/]+\.py)\) `(test_\w+)` \|")

pytestmark = pytest.mark.any_tensorflow


def test_each_defect_has_a_test_that_exists():
  page = (ROOT / "docs" / "track_record.md").read_text(encoding="utf-8")
  lines = page.partition("## Open")[0].splitlines()
  rows = [line for line in lines if line.startswith("| ") and not line.startswith("| defect |")]
  assert len(rows) > 20
  for row in rows:
    shown, path, name = ROW.search(row).groups()
    assert shown == path
    assert "def %s(" % name in (ROOT / "tests" / path).read_text(encoding="utf-8"), row
    assert row.count("|") == 6
