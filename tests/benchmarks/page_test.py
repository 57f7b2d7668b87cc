from __future__ import annotations

import pytest

from benchmarks import page, rows

pytestmark = pytest.mark.any_tensorflow
RUN = {"date": "2026-01-02", "machine": "M", "versions": ["V"], "pace": "P"}


def made(table, system, rate, ratio, loss=None, **kwargs):
  one = rows.row("S", "loopback", system, "", [rate], ratio, {"worker": 1.5, "ps": 1}, None, 2500,
                 loss)
  return rows.of_run([dict(one, **kwargs)], "latency_S", table, RUN)


def text_of_page():
  with open(page.PAGE, encoding="utf-8") as file:
    return file.read()


def test_the_page_is_the_one_that_the_rows_make():
  text = text_of_page()
  assert page.with_tables(text, rows.read(page.RESULTS)) == text, (
    "python -m benchmarks.page writes the page again")


def test_every_row_is_on_a_page():
  text = text_of_page()
  for one in rows.read(page.RESULTS):
    rate = one.get("seconds") or one["steps_per_second"]  # the table is of one of both
    name = one["system"].replace(rows.ANOTHER, "")
    assert name in text and page._range(rate) in text, one


def test_a_table_of_systems():
  found = made(1, "classic", 20, 1, 0.25) + made(1, "tf1ps" + rows.ANOTHER, 40, 2, 0.5)
  text = "a\n<!-- systems: latency_S -->\nold\n<!-- end -->\nb\n"
  assert page.with_tables(text, found).splitlines()[5:7] == [
    "|classic|20 (20–20)|1|1.5+1|2|0.25|",
    "|tf1ps †|40 (40–40)|2|1.5+1|2|0.5|"]
  again = page.with_tables(text, found)
  assert page.with_tables(again, found) == again and again.startswith("a\n") and "old" not in again


def test_without_a_loss_the_mark_comes_from_another_table_of_the_model():
  found = made(1, "tf1ps" + rows.ANOTHER, 40, 2, 0.5) + made(2, "tf1ps", 40, 2)
  text = "<!-- links: latency_S 2 -->\n<!-- end -->"
  assert "|tf1ps †|40 (40–40)|2|" in page.with_tables(text, found)


def test_a_headline_is_no_other_algorithm_and_not_lost():
  found = (made(1, "classic, TensorFlow 1.15", 20, 1.5, 0.25) + made(1, "tf1ps", 21, 1.1, 0.25)
           + made(1, "tf1ps, fast" + rows.ANOTHER, 90, 9, 0.5)
           + made(1, "tf1ps, lost", 1, None, lost="killed") + made(1, "tf1ps, few", 30, 2, 0.25))
  text = page.with_tables("<!-- headlines: latency_S -->\n<!-- end -->", found)
  assert "|[latency_S](#latency_s), S|1.5||1.1|2: few|" in text


def test_new_rows_take_the_place_of_their_table():
  old = made(1, "classic", 20, 1) + made(2, "classic", 30, 1)
  new = made(2, "classic", 50, 1)
  assert page.merged(old, new) == old[:1] + new
  with pytest.raises(ValueError, match="no row of startup"):
    page.with_tables("<!-- seconds: startup -->\n<!-- end -->", old)


def test_rows_of_a_quick_run_are_refused(tmp_path):
  path = str(tmp_path / "rows.jsonl")
  one, = made(1, "classic", 20, 1)
  rows.write(path, [dict(one, run=dict(one["run"], losses="after 16 minibatches; --quick"))])
  with pytest.raises(SystemExit, match="rows of --quick"):
    page.main([path])
