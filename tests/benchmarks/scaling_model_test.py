from __future__ import annotations

import pytest

from benchmarks import rows, scaling_model


def rows_of(system, per_variable):
  """Rows of a system whose ps takes 1 ms and so much a variable, and 400 + 10 w MB."""
  found = []
  for variables in (10, 50, 200):
    found.append(dict(rows.row(
      "V%d" % variables, "loopback", system, "", [100.0], 1.0,
      {"worker": 1.0, "ps": 1 + per_variable * variables}, 900.0, 2000.0 * variables),
      scale={"workers": 1, "ps": 1, "variables": variables}, ps_peak_mb=410.0))
    found.append(dict(rows.row("V%d" % variables, "none", system + ", building the graph", "", []),
                      scale={"variables": variables},
                      seconds={"median": 0.5 + 0.01 * variables}))
  for workers in (1, 2, 4):
    found.append(dict(rows.row(
      "S", "loopback", system, "", [100.0], 1.0, {"worker": 1.0, "ps": 2.0}, 900.0, 60000.0),
      scale={"workers": workers, "ps": 1, "variables": 2}, ps_peak_mb=400.0 + 10 * workers))
  return found


def sessions():
  return [dict(rows.row("session", "loopback", "x", "", []), scale={"tasks": tasks},
               seconds={"filtered": 0.01, "unfiltered": 0.01 + 0.001 * tasks})
          for tasks in (4, 16, 64)]


def test_lines_are_found_again():
  fitted = scaling_model.fit_system(rows_of("classic", 0.1), "classic")
  assert fitted.ps_ms == pytest.approx((1.0, 0.1))
  assert fitted.graph_s == pytest.approx((0.5, 0.01))
  assert fitted.ps_ms_of_workers == pytest.approx((2.0, 0.0))
  assert fitted.ps_mb == pytest.approx((400.0, 10.0))
  assert scaling_model.fit_sessions(sessions())["unfiltered"] == pytest.approx((0.01, 0.001))
  assert scaling_model.fit([(3, 4.0)]) == (4.0, 0.0)


def test_what_the_ps_allow_and_from_how_many_workers_on():
  fitted = scaling_model.fit_system(rows_of("classic", 0.1), "classic")
  # 11 ms of a ps for 100 variables' worth; here 200: 21 ms, so 8 cores apply 8000 / 21 a second.
  found = scaling_model.limits(fitted, 200, workers=100, ps=1, cores=8, gbit=1)
  assert found["asked"] == pytest.approx(10000)
  assert found["processors"] == pytest.approx(8000 / 21)
  assert found["wire"] == pytest.approx(1e9 / 8 / 200000)
  assert found["workers"] == pytest.approx(8000 / 21 / 100)
  twice = scaling_model.limits(fitted, 200, workers=100, ps=2, cores=8, gbit=1)
  # Each of the two has the fixed millisecond, and half of the others: 22 ms for both.
  assert twice["processors"] == pytest.approx(2 * 8000 / 22)
  assert twice["workers"] == pytest.approx(2 * 8000 / 22 / 100)


def test_the_report_says_what_is_met_first(tmp_path, capsys):
  path = str(tmp_path / "rows.jsonl")
  rows.write(path, rows_of("classic", 0.1) + rows_of("tf1ps", 0.0) + sessions())
  scaling_model.main([path, "--workers=1,1000", "--ps=1", "--cores=8", "--gbit=1"])
  said = capsys.readouterr().out
  assert "| 200 | 1000 | 1 | 1e+05 | 381 | 625 | processors | 4 | 10400 |" in said
  assert "| 200 | 1000 | 1 | 1e+05 | 8e+03 | 625 | wire | 6 | 10400 |" in said
  assert "| 10 | 1 | 1 | 100 | 4e+03 | 1.25e+04 | none | 40 | 410 |" in said
  assert "| 1000 | 0.01 | 1.01 |" in said


def test_without_the_rows_it_says_what_to_measure(tmp_path, capsys):
  path = str(tmp_path / "rows.jsonl")
  classic, own = rows_of("classic", 0.1), rows_of("tf1ps", 0.0)
  for found, message in (
      (classic + own, "there are no rows of sessions: measure all of it with `python"),
      (classic + sessions(), "there are no rows of tf1ps in which variables, workers and graphs")):
    rows.write(path, found)
    with pytest.raises(SystemExit):
      scaling_model.main([path])
    assert message in capsys.readouterr().err
