"""examples/README.md and its Chinese version name every example."""
from __future__ import annotations

import re

import pytest

from tests.examples import chinese, contents, docstrings

DOCSTRING = '''"""What it shows, in
one | sentence. And more.

%s
Toolkit: docs/cluster.md#containers and docs/queues.md.

    1$ python a.py --hosts=127.0.0.1:1 \\\\
        --x=1
    ...
    2$ python a.py     --x=2
    a | b
    a | b
"""'''
ROWS = "Examples B16, B17. Section: queues."


def example(folder, rows, name="a.py"):
  path = folder / name
  path.write_text(DOCSTRING % rows)
  return docstrings.read(path)


@pytest.mark.parametrize("path, table", [
  (contents.README, contents.table), (contents.CHINESE_README, contents.chinese_table)])
def test_the_table_is_that_of_the_examples(path, table):
  written = path.read_text(encoding="utf-8")
  assert contents.BEGIN + "\n" + table() + contents.END in written, (
    "run: make examples ARGS=--table")


def test_every_example_has_its_chinese_words():
  folder = contents.README.parent
  names = {found.path.relative_to(folder).as_posix() for found in docstrings.find()}
  assert set(chinese.WORDS) == names  # fewer: add them to tests/examples/chinese.py
  for name, words in chinese.WORDS.items():
    assert re.search("[\u4e00-\u9fff]", words) and words.endswith("。"), name
    assert "\n" not in words, name


def test_every_example_has_its_section():
  for found in docstrings.find():
    assert contents.section_of(found) in contents.SECTIONS


def test_both_say_the_same():
  """Beside the table: the same links, names and commands."""
  kept = []
  for path in (contents.README, contents.CHINESE_README):
    text = path.read_text(encoding="utf-8").partition(contents.BEGIN)[0]
    found = set(re.findall(r"`[^`\n]+`|\]\([^)]*\)|^python .*", text, re.MULTILINE))
    kept.append(sorted(found - {"](README.md)", "](README.zh.md)"}))
  assert kept[0] == kept[1]


def test_a_line(tmp_path, monkeypatch):
  monkeypatch.setattr(contents, "README", tmp_path / "README.md")
  assert contents.describe(example(tmp_path, ROWS)) == (
    "B16, B17", "[What it shows, in one | sentence.](a.py)", "`a | b`",
    "[containers](../docs/cluster.md#containers)")


def test_a_line_in_chinese(tmp_path, monkeypatch):
  monkeypatch.setattr(contents, "README", tmp_path / "README.md")
  line = contents.describe(example(tmp_path, ROWS))
  assert contents.translate(line, "a.py") == line
  monkeypatch.setattr(chinese, "WORDS", {"a.py": "甲。"})
  assert contents.translate(line, "a.py") == line._replace(shows="[甲。](a.py)")


def test_what_is_printed_is_shortened():
  assert contents.shorten(list("abcd")) == list("abcd")
  assert contents.shorten(list("abcde")) == ["a", "b", "...", "e"]
  assert contents.shorten(["x" * 80]) == ["x" * 68 + " ..."]


@pytest.mark.parametrize("rows", [
  "", "Example B13.", "Example B13. Section: notes.", "Example: B13. Section: queues."])
def test_a_docstring_without_its_section(rows, tmp_path):
  with pytest.raises(ValueError, match="a.py: no line `Example B13. Section: variables.`"):
    contents.describe(example(tmp_path, rows))


def test_the_order_and_the_place_of_the_table(tmp_path, monkeypatch):
  monkeypatch.setattr(contents, "README", tmp_path / "README.md")
  monkeypatch.setattr(contents, "CHINESE_README", tmp_path / "README.zh.md")
  monkeypatch.setattr(chinese, "WORDS", {"X8.py": "甲。"})
  sections = {"B42": "parallel", "B05": "devices", "B43": "devices"}
  found = [example(tmp_path, "Example %s. Section: %s." % (name, sections.get(name, "none")),
                   name + ".py")
           for name in ("N1", "E2", "E10", "X8", "B43", "B42", "B05")]
  monkeypatch.setattr(docstrings, "find", lambda: found)
  for path in (contents.README, contents.CHINESE_README):
    path.write_text("before\n%s\nold\n%s\nafter\n" % (contents.BEGIN, contents.END))
  contents.write()
  contents.write()  # once more changes nothing
  for path, language, chinese_lines in (
      (contents.README, 0, []), (contents.CHINESE_README, 1, ["X8"])):
    text = path.read_text(encoding="utf-8")
    named = [contents.SECTIONS[name][language] for name in ("devices", "parallel", "X", "E", "N")]
    assert re.findall(r"^(?:\| ([A-Z]\d+) |## (.*))", text, re.MULTILINE) == [
      ("", named[0]), ("B05", ""), ("B43", ""), ("", named[1]), ("B42", ""), ("", named[2]),
      ("X8", ""), ("", named[3]), ("E2", ""), ("E10", ""), ("", named[4]), ("N1", "")]
    assert re.findall(r"^\| (\S+) .*甲", text, re.MULTILINE) == chinese_lines
    assert text.startswith("before\n<!--") and text.endswith("-->\nafter\n") and "old" not in text
    assert "one \\| sentence" in text and "a \\| b" in text
