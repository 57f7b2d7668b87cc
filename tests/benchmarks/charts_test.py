from __future__ import annotations

import sys

from benchmarks import charts, rows

# The smallest, rounded, is a little above what the rounded ratio makes of the median.
ROWS = [rows.row("S", "loopback", "classic", "", [100.0], 1.0),
        rows.row("S", "loopback", "tf1ps, prefetch" + rows.ANOTHER, "", [33.335, 33.336], 0.33333),
        rows.row("csv", "none", "readers", "", [])]


def test_a_chart_is_drawn_or_it_is_said_why_not(tmp_path, capsys, monkeypatch):
  path = tmp_path / "chart.png"
  try:
    import matplotlib  # noqa: F401
  except ImportError:
    assert not charts.draw(str(path), ROWS, "")
    assert 'pip install "tf1ps[bench]"' in capsys.readouterr().err
    return
  assert charts.draw(str(path), ROWS, "two processors")
  assert path.read_bytes()[:4] == b"\x89PNG"
  monkeypatch.setitem(sys.modules, "matplotlib", None)
  assert not charts.draw(str(path), ROWS, "")
