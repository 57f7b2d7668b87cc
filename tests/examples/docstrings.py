"""Reads the commands in an example's docstring, and compares lines with those expected there.

A docstring shows, indented, a command and the lines that it prints on standard output:

    $ python examples/book/some_example.py --target=127.0.0.1:2222
    1.0
    ... seconds

`...` in a line stands for anything within it; a line that is only `...`, for any number of lines.
A command may go on in the next line behind a backslash. Commands run one after the other. Those
with numbered shells, `1$ `, `2$ `, that follow each other without text in between start together;
a further one of the same number comes when the last one in that shell has ended. A numbered shell
without lines may print anything: the lines stand where the example starts all shells by itself.

`Example B13. Section: variables.` is the example's name and its section in the table. `Only on:
2.x, because ...` (or 1.15) says that the example holds for one TensorFlow alone.
"""
from __future__ import annotations

import ast
import difflib
import pathlib
import re
from typing import List, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]  # the checkout: where commands are run


class Shell(NamedTuple):
  """The commands of one shell, one after the other."""
  number: str  # "" where the docstring gives none
  commands: List[str]
  expected: List[str]  # the lines that they print, all together


class Example(NamedTuple):
  """What is to be checked of one file."""
  path: pathlib.Path
  docstring: str
  rows: List[str]  # "B13" and so on
  section: str  # "variables" and so on, or ""
  only_on: str  # "2.x", "1.15", or "" for both
  steps: List[List[Shell]]  # the shells of a step start together


def find(folder=ROOT / "examples"):
  """Returns the Examples of all files below a folder whose docstrings show a command."""
  found = [read(path) for path in sorted(folder.glob("**/*.py"))]
  return [example for example in found if example.steps]


def read(path) -> Example:
  """Reads one file."""
  tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
  docstring = ast.get_docstring(tree, clean=False) or ""
  only_on = re.search(r"^Only on: (2\.x|1\.15)\b", docstring, re.MULTILINE)
  row = re.search(r"^Examples? ([BXEN]\d+(?:, [BXEN]\d+)*)\.(?: Section: (\w+)\.)?$", docstring,
                  re.MULTILINE)
  return Example(path, docstring, row.group(1).split(", ") if row else [],
                 row.group(2) or "" if row else "", only_on.group(1) if only_on else "",
                 find_steps(docstring))


def find_steps(docstring: str) -> List[List[Shell]]:
  """Returns the steps, each of them shells that start together."""
  steps = []  # of dicts by number
  shell, margin, unfinished, together = None, 0, False, False
  for line in docstring.splitlines():
    command = re.match(r"( +)(\d*)\$ (.*)", line)
    indent = len(line) - len(line.lstrip())
    if command:
      number = command.group(2)
      if not (number and together):
        steps.append({})
      shell = steps[-1].setdefault(number, Shell(number, [], []))
      drop_blank_end(shell.expected)
      shell.commands.append(command.group(3))
      margin, unfinished, together = len(command.group(1)), line.endswith("\\"), bool(number)
    elif line and indent < margin:
      shell, margin, together = None, 0, False
    elif shell and unfinished:
      shell.commands[-1] += "\n" + line.strip()
      unfinished = line.endswith("\\")
    elif shell:
      shell.expected.append(line[margin:].rstrip())
  for step in steps:
    for shell in step.values():
      drop_blank_end(shell.expected)
      if shell.number and not shell.expected:
        shell.expected.append("...")
  return [list(step.values()) for step in steps]


def matches(expected: List[str], printed: List[str]) -> bool:
  """Says whether the lines are those that were expected, `...` standing for what may vary."""
  pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else _pattern(line) + r"\n"
                    for line in expected)
  return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def difference(expected: List[str], printed: List[str]) -> str:
  """Shows the lines that are missing, "-", and those that came instead, "+"."""
  patterns = [line for line in expected if line.strip() != "..."]

  def as_expected(line):
    return next((said for said in patterns if re.fullmatch(_pattern(said), line)), line)

  lines = difflib.ndiff(expected, [as_expected(line) for line in printed])
  return "\n".join("  " + line.rstrip() for line in lines if not line.startswith("?"))


def drop_blank_end(lines: List[str]) -> None:
  """Takes empty lines off the end."""
  while lines and not lines[-1]:
    lines.pop()


def _pattern(line):
  return ".*".join(re.escape(part) for part in line.split("..."))
