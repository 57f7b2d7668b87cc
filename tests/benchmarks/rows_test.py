from __future__ import annotations

import pytest

from benchmarks import interleaving, jobs, losses, rows

ROW = rows.row("L", "loopback", "tf1ps", "--threads=1", [30.0, 10.0, 20.0], 2.0,
               {"worker": 3.0, "ps": 1.5}, 900.0, 1234.4, 0.25, 240)


def test_a_row_has_the_keys_and_the_middle_of_its_rounds(tmp_path):
  assert list(ROW) == ["model", "link", "system", "options", "steps_per_second",
                       "ratio_to_classic", "cpu_ms_per_step", "peak_mb", "bytes_per_step",
                       "eval_loss", "minibatches"]
  assert ROW["steps_per_second"] == {"median": 20.0, "min": 10.0, "max": 30.0}
  path = str(tmp_path / "rows.jsonl")
  rows.write(path, [ROW, ROW])
  assert rows.read(path) == [ROW, ROW]


def test_the_table():
  bare = rows.row("csv", "none", "readers", "", [])
  assert rows.table([ROW, bare]).splitlines()[2:] == [
    "| L | loopback | tf1ps | `--threads=1` | 20 (10 to 30) | 2 | 3 + 1.5 | 900 | 1.2 | 0.25 "
    "| 240 |",
    "| csv | none | readers |  |  |  |  |  |  |  |  |"]
  assert rows.extras([ROW, dict(bare, seconds=2)]) == ["- csv, readers: seconds 2"]


def test_what_a_row_of_a_comparison_lacks():
  assert rows.incomplete([ROW, rows.row("csv", "none", "readers", "", [])]) == []
  assert rows.incomplete([dict(ROW, eval_loss=None)]) == ["L, tf1ps: no eval_loss"]
  assert rows.incomplete([{key: ROW[key] for key in ROW if key != "link"}]) == [
    "L, tf1ps: no link, link"]


def test_another_algorithm_is_no_headline():
  assert rows.is_headline(ROW)
  assert not rows.is_headline(dict(ROW, system="tf1ps" + rows.ANOTHER))
  assert losses.is_another_algorithm(2.2225, 2.2098, 0.01)
  assert not losses.is_another_algorithm(2.2225, 2.2098, 0.02)
  assert not losses.is_another_algorithm(2.2098, 2.2098, 0.0)
  assert losses.is_another_algorithm(float("nan"), 2.2098, 0.02)


def test_a_seed_that_does_not_run_costs_no_table(monkeypatch):
  def train(model, line, minibatches, seed=0):
    if seed == 1:
      raise jobs.JobError("classic: worker 0 ended with 1")
    return 0.5 + 0.1 * seed

  monkeypatch.setattr(losses, "train", train)
  monkeypatch.setattr(interleaving, "left_out", [])
  assert losses.spread("S", None, 16, 0.5, seeds=4) == pytest.approx(0.3)
  assert interleaving.left_out == ["did not run: classic: worker 0 ended with 1"]
