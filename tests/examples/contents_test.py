"""examples/README.md and its Chinese version name every example."""
from __future__ import annotations

import re

import pytest

from examples import chinese, contents, docstrings

DOCSTRING = '''"""What it shows, in
one | sentence. And more.

Row: %s. Notes 000, section 9 ("variables in
a cluster"); 004, 1.5.1.
Mechanism: tf.container and a
ps: two clients. More.
Toolkit: docs/containers.md and docs/queues.md.

    1$ python a.py --hosts=127.0.0.1:1 \\\\
        --x=1
    2$ python a.py     --x=2
    a
"""'''


def example(folder, rows, name="a.py", docstring=DOCSTRING):
  path = folder / name
  path.write_text(docstring % rows if "%s" in docstring else docstring)
  return docstrings.read(path)


@pytest.mark.parametrize("path, table", [
  (contents.README, contents.table), (contents.CHINESE_README, contents.chinese_table)])
def test_the_table_is_that_of_the_examples(path, table):
  written = path.read_text(encoding="utf-8")
  assert contents.BEGIN + "\n" + table() + contents.END in written, (
    "run: python -m examples --table")


def test_every_example_has_its_chinese_words():
  folder = contents.README.parent
  names = {found.path.relative_to(folder).as_posix() for found in docstrings.find()}
  assert set(chinese.WORDS) == names  # fewer: add them to examples/chinese.py
  for name, words in chinese.WORDS.items():
    assert re.search("[\u4e00-\u9fff]", words.shows) and words.shows.endswith("。"), name
    assert all(words) and "\n" not in "".join(words), name


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
  assert contents.describe(example(tmp_path, "B16, B17")) == (
    "B16, B17", "[What it shows, in one | sentence.](a.py)",
    'Notes 000, section 9 ("variables in a cluster"); 004, 1.5.1',
    "tf.container and a ps: two clients",
    "1$ `python a.py --hosts=127.0.0.1:1 --x=1`<br>2$ `python a.py --x=2`",
    "[containers](../docs/containers.md)")


def test_a_line_in_chinese(tmp_path, monkeypatch):
  monkeypatch.setattr(contents, "README", tmp_path / "README.md")
  line = contents.describe(example(tmp_path, "B16, B17"))
  assert contents.translate(line, "a.py") == line
  monkeypatch.setattr(chinese, "WORDS", {"a.py": chinese.Words("甲。", "笔记 000", "乙")})
  assert contents.translate(line, "a.py") == line._replace(
    shows="[甲。](a.py)", notes="笔记 000", mechanism="乙")


@pytest.mark.parametrize("docstring", [
  '"""A.\n\n    $ true\n"""',
  '"""A.\n\nRow: none. Notes 000. Mechanism: b.\n\n    $ true\n"""',
  '"""A.\n\nRow: B01. Notes 000.\n\n    $ true\n"""'])
def test_a_docstring_without_its_row(tmp_path, docstring):
  with pytest.raises(ValueError, match="a.py: no line `Row: B13"):
    contents.describe(example(tmp_path, "", docstring=docstring))


def test_the_order_and_the_place_of_the_table(tmp_path, monkeypatch):
  monkeypatch.setattr(contents, "README", tmp_path / "README.md")
  monkeypatch.setattr(contents, "CHINESE_README", tmp_path / "README.zh.md")
  monkeypatch.setattr(chinese, "WORDS", {"X8.py": chinese.Words("甲。", "笔记 000", "乙")})
  found = [example(tmp_path, row, row + ".py") for row in ("N1", "E2", "E10", "X8", "B42", "B05")]
  monkeypatch.setattr(docstrings, "find", lambda: found)
  for path in (contents.README, contents.CHINESE_README):
    path.write_text("before\n%s\nold\n%s\nafter\n" % (contents.BEGIN, contents.END))
  contents.write()
  contents.write()  # once more changes nothing
  for path, chinese_lines in ((contents.README, []), (contents.CHINESE_README, ["X8"])):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^\| ([A-Z]\d+) ", text, re.MULTILINE) == [
      "B05", "B42", "X8", "E2", "E10", "N1"]
    assert re.findall(r"^\| (\S+) .*甲", text, re.MULTILINE) == chinese_lines
    assert text.startswith("before\n<!--") and text.endswith("-->\nafter\n") and "old" not in text
    assert "one \\| sentence" in text
