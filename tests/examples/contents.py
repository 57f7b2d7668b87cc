"""The tables in examples/README.md and README.zh.md, made from the examples' docstrings.

A docstring's first sentence says what the example shows. Then stands, on a line of its own,

    Example B13. Section: variables.

and, somewhere, the page of the docs, docs/NAME.md. An example without such a page is about bare
TensorFlow alone. Only the chapter's examples (B) have a section; it is a name of SECTIONS. The
table has a heading for each section and shows the lines that the docstring's commands print. The
Chinese table is the same one with the words of chinese.py.
"""
from __future__ import annotations

import re
from typing import NamedTuple

from . import chinese, docstrings

README = docstrings.ROOT / "examples" / "README.md"
CHINESE_README = README.with_name("README.zh.md")
BEGIN, END = "<!-- from here: make examples ARGS=--table -->", "<!-- to here -->"
# The sections by the name in a docstring, or by the letter of the example: in English, in Chinese.
SECTIONS = {
  "devices": ("Devices", "设备"),
  "clusters": ("Clusters", "集群"),
  "variables": ("Variables and containers", "变量与容器"),
  "queues": ("Queues", "队列"),
  "data": ("Loading data", "加载数据"),
  "parallel": ("Training in parallel", "并行训练"),
  "X": ("The chapter's exercises", "本章习题"),
  "E": ("Programs", "完整程序"),
  "N": ("Small things", "小例子"),
}
# Pages beside the examples, which stand first in their section: in English, in Chinese.
PAGES = {
  "X": ("| X1–X7 | [Answers to the chapter's seven questions.](exercises/answers.md) | | |\n",
        "| X1–X7 | [本章七道思考题的答案（英文）。](exercises/answers.md) | | |\n"),
}
HEAD = "| | shows | prints | docs |\n|---|---|---|---|\n"
CHINESE_HEAD = "| 编号 | 内容 | 输出 | 文档 |\n|---|---|---|---|\n"
LINES, WIDTH = 4, 72  # of the printed result: that many lines, that many characters of a line


class Line(NamedTuple):
  """The table's words for an example."""
  name: str  # "B16, B17"
  shows: str  # the first sentence
  prints: str  # the lines that its commands print, shortened
  page: str  # a link, or ""


def table() -> str:
  """Returns the tables of all sections in the order of the chapter."""
  return _sections(0, HEAD, describe)


def chinese_table() -> str:
  """Returns the same in Chinese; words that chinese.py lacks are in English."""
  return _sections(1, CHINESE_HEAD, lambda example: translate(describe(example), _name(example)))


def describe(example) -> Line:
  """Returns an example's line; a ValueError says what its docstring lacks."""
  section_of(example)
  page = re.search(r"\bdocs/(\w+)\.md(?:#([\w-]+))?", example.docstring)
  shows = re.match(r"(.*?\.)(?=\s|$)", example.docstring, re.DOTALL)
  return Line(
    ", ".join(example.rows), _link(shows.group(1) if shows else example.path.stem, _name(example)),
    "<br>".join("`%s`" % line for line in shorten(printed(example))),
    _link((page.group(2) or page.group(1)).replace("-", " "),
          "../" + page.group(0)) if page else "")


def section_of(example) -> str:
  """Returns the name of an example's section; a ValueError says what its docstring lacks."""
  name = example.section if example.rows and example.rows[0][0] == "B" else "".join(
    example.rows)[:1]
  if name not in SECTIONS:
    raise ValueError("%s: no line `Example B13. Section: variables.` in its docstring; sections "
                     "are %s" % (example.path, ", ".join(key for key in SECTIONS if len(key) > 1)))
  return name


def printed(example):
  """Returns the lines that an example's commands print, each once."""
  lines = [line.strip() for step in example.steps for shell in step for line in shell.expected]
  return list(dict.fromkeys(line for line in lines if line and line != "..."))


def shorten(lines):
  """Returns at most LINES lines of at most WIDTH characters: the first ones and the last one."""
  lines = [line if len(line) <= WIDTH else line[:WIDTH - 4].rstrip() + " ..." for line in lines]
  return lines if len(lines) <= LINES else lines[:LINES - 2] + ["..."] + lines[-1:]


def translate(line: Line, name: str) -> Line:
  """Returns the line of the example of that name, with its Chinese words if it has any."""
  words = chinese.WORDS.get(name)
  return line._replace(shows=_link(words, name)) if words else line


def write() -> None:
  """Puts the tables into both files, in the place of those that are there."""
  for path, new in ((README, table()), (CHINESE_README, chinese_table())):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.partition(BEGIN)[0] + BEGIN + "\n" + new + END + text.partition(END)[2],
                    encoding="utf-8")


def _sections(language, head, line_of):
  parts = {}
  for example in sorted(docstrings.find(), key=_place):
    parts.setdefault(section_of(example), []).append(_row(line_of(example)))
  for name, page in PAGES.items():
    if name in parts:
      parts[name].insert(0, page[language])
  return "".join("\n## %s\n\n%s%s" % (SECTIONS[name][language], head, "".join(parts[name]))
                 for name in SECTIONS if name in parts) + "\n"


def _row(line):
  return "| %s |\n" % " | ".join(cell.replace("|", "\\|") for cell in line)


def _name(example):
  return example.path.relative_to(README.parent).as_posix()


def _link(text, target):
  return "[%s](%s)" % (" ".join(text.split()), target)


def _place(example):
  row = example.rows[0] if example.rows else "?0"
  return row[0], int(row[1:]), example.path.name
