"""The table in examples/README.md and README.zh.md, made from the examples' docstrings.

A docstring's first sentence says what the example shows. Then stand, in this order,

    Row: B13. Notes 000, section 9 ("..."). Mechanism: containers. And so on.

and, somewhere, the page of the docs, docs/NAME.md; without one, it is about bare TensorFlow alone.
The Chinese table is the same one with words of chinese.py.
"""
from __future__ import annotations

import re
from typing import NamedTuple

from . import chinese, docstrings

README = docstrings.ROOT / "examples" / "README.md"
CHINESE_README = README.with_name("README.zh.md")
BEGIN, END = "<!-- from here: python -m examples --table -->", "<!-- to here -->"
HEAD = ("| row | shows | notes | mechanism | commands | docs |\n"
        "|---|---|---|---|---|---|\n")
CHINESE_HEAD = ("| 编号 | 内容 | 笔记 | 机制 | 命令 | 文档 |\n"
                "|---|---|---|---|---|---|\n")


class Line(NamedTuple):
  """What the table says of an example."""
  rows: str  # "B16, B17"
  shows: str  # the first sentence
  notes: str  # the section of the notes
  mechanism: str
  commands: str  # all of them, with the numbers of their shells
  page: str  # a link, or ""


def table() -> str:
  """Returns the table, in the order of the chapter, its exercises, programs, small things."""
  return HEAD + "".join(_row(describe(example)) for example in _in_order())


def chinese_table() -> str:
  """Returns the same in Chinese; what chinese.py lacks, in English."""
  return CHINESE_HEAD + "".join(
    _row(translate(describe(example), _name(example))) for example in _in_order())


def describe(example) -> Line:
  """Returns an example's line; a ValueError says what its docstring lacks."""
  docstring = example.docstring
  row = re.search(r"^Rows?: [^.]*\.\s+(.*?)\.\s+Mechanism: (.*?)\.(?=\s)", docstring,
                  re.DOTALL | re.MULTILINE)
  if not example.rows or not row:
    raise ValueError("%s: no line `Row: B13. Notes 000, section .... Mechanism: ....` in its "
                     "docstring" % example.path)
  page = re.search(r"\bdocs/(\w+)\.md\b", docstring)
  shows = re.match(r"(.*?\.)(?=\s|$)", docstring, re.DOTALL)
  return Line(
    ", ".join(example.rows), _link((shows or row).group(1), _name(example)),
    _one_line(row.group(1)), _one_line(row.group(2)), "<br>".join(_commands(example)),
    "[%s](../docs/%s.md)" % (page.group(1), page.group(1)) if page else "")


def translate(line: Line, name: str) -> Line:
  """Returns the line of the example of that name, with its Chinese words if it has any."""
  words = chinese.WORDS.get(name)
  if not words:
    return line
  return line._replace(shows=_link(words.shows, name), notes=words.notes,
                       mechanism=words.mechanism)


def write() -> None:
  """Puts the tables into both files, in the place of those that are there."""
  for path, new in ((README, table()), (CHINESE_README, chinese_table())):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.partition(BEGIN)[0] + BEGIN + "\n" + new + END + text.partition(END)[2],
                    encoding="utf-8")


def _row(line):
  return "| %s |\n" % " | ".join(cell.replace("|", "\\|") for cell in line)


def _in_order():
  return sorted(docstrings.find(), key=_place)


def _name(example):
  return example.path.relative_to(README.parent).as_posix()


def _link(text, target):
  return "[%s](%s)" % (_one_line(text), target)


def _place(example):
  row = example.rows[0] if example.rows else "?"
  return "BXEN?".index(row[0]), int(row[1:] or 0), example.path.name


def _one_line(text):
  return " ".join(text.split())


def _commands(example):
  # Where a docstring is not raw, Python has joined the lines of a command, indentation and all.
  for step in example.steps:
    for shell in step:
      for command in shell.commands:
        yield "%s`%s`" % (shell.number and shell.number + "$ ",
                          re.sub(r"\s*\\\n\s*| {2,}", " ", command))
