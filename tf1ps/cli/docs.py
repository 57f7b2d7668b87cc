"""tf1ps docs: lists the pages of the documentation, or prints a page or a section."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from typing import Dict, List

import tf1ps
from tf1ps import version
from tf1ps.compat import EXIT_FAILED

_NAME = "tf1ps-docs"
_FOLDER = os.path.join(os.path.dirname(tf1ps.__file__), "docs")  # in a checkout a link to docs/


def run(argv: List[str]) -> int:
  """Prints pages; returns the exit code: 0, 1 for an unknown page, 2 for a wrong command line."""
  parser = argparse.ArgumentParser(
    prog=_NAME, allow_abbrev=False,
    description="Lists the pages of the documentation, or prints a page: tf1ps docs run, or "
                "tf1ps docs run#signals for a section.")
  parser.add_argument("page", nargs="?", metavar="PAGE[#SECTION]", help="a page of the list")
  parser.add_argument("--version", action="version", version="%s %s" % (_NAME, version.__version__))
  try:
    page = parser.parse_args(argv).page
  except SystemExit as error:  # --help, or a wrong flag, whose error argparse has printed
    return error.code or 0
  names = [name[:-len(".md")] for name in sorted(os.listdir(_FOLDER)) if name.endswith(".md")]
  if page is None:
    print("\n".join("%-18s %s" % (name, _read(name)[0].lstrip("# ")) for name in names))
    return 0
  name, _, anchor = page.partition("#")
  if name not in names:
    return _refuse("page", name, names)
  lines = _read(name)
  if anchor:
    sections = _sections(lines)
    if anchor not in sections:
      return _refuse("section", page, [name + "#" + section for section in sections])
    lines = lines[sections[anchor]]
  print("\n".join(lines).rstrip())
  return 0


def _read(name: str) -> List[str]:
  with open(os.path.join(_FOLDER, name + ".md"), encoding="utf-8") as file:
    return file.read().splitlines()


def _sections(lines: List[str]) -> Dict[str, slice]:
  """Returns {anchor: the lines of its section, including the sections inside it}."""
  sections, is_code = {}, False
  for number, line in enumerate(lines):
    is_code ^= line.lstrip().startswith("```")
    level = 0 if is_code else len(line) - len(line.lstrip("#"))
    if level:
      for anchor, (depth, first, last) in sections.items():
        if last is None and depth >= level:
          sections[anchor] = depth, first, number
      title = re.sub(r"[^\w\- ]", "", line[level:].strip().lower())
      sections[title.replace(" ", "-")] = level, number, None
  return {anchor: slice(first, last) for anchor, (_, first, last) in sections.items()}


def _refuse(kind: str, name: str, names: List[str]) -> int:
  near = difflib.get_close_matches(name, names, n=1)
  print("%s: the documentation has no %s %s%s (`tf1ps docs` lists the pages)" % (
    _NAME, kind, name, "; did you mean %s?" % near[0] if near else ""), file=sys.stderr)
  return EXIT_FAILED
