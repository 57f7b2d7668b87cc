"""Changes to a program's text, which leave the rest of the file unchanged.

1. Imports of TensorFlow become imports of tf1ps.v1.
2. Names from before TensorFlow 1.0, and names that NumPy has removed, become today's names if their
   arguments are the same.
3. Cross entropies get the names of their arguments: logits=, labels=.

Other old calls, such as `tf.concat(1, values)`, work unchanged in tf1ps.v1.
"""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from typing import Callable, List, NamedTuple

from tf1ps import compat
from tf1ps.doctor import changed_rules, python_rules
from tf1ps.doctor.program import SourceFile

_DOTTED = re.compile(r"\w+(?:\.\w+)+")
# {old name: today's name}: TensorFlow's names below the module, NumPy's names as they are written
_SIMPLE = {"tf." + old: new for old, new in compat.RENAMED.items()
           if old not in compat.OTHER_ARGUMENTS}
_SIMPLE.update({"numpy." + old: new for old, new in python_rules.NUMPY.items()})
_ARGUMENTS = ("logits", "labels", "name")  # of a cross entropy before TensorFlow 1.0


class _Edit(NamedTuple):
  """A piece of the text, by offsets, and its new text."""

  start: int
  end: int
  new: str


def fix(program: SourceFile, replace_imports: Callable) -> str:
  """Returns the program's text with the changes; a program for Python 2 stays unchanged.

  Args:
    program: the program.
    replace_imports: replaces the imports in a tree, and returns for each changed statement
      an object with its `line` and its `new` text.
  """
  if program.is_python2:
    return program.text
  text = _Text(program.text)
  edits = _imports(program, text, replace_imports) + _old_names(program, text)
  for names in _cross_entropies(program, text):
    if _parses(_apply(program.text, names)):  # not if an argument has its own parentheses
      edits += names
  return _apply(program.text, edits)


class _Text:
  """Offsets in a text."""

  def __init__(self, text: str):
    self.text = text
    self._lines = text.split("\n")
    self._starts = [0]
    for line in self._lines:
      self._starts.append(self._starts[-1] + len(line) + 1)

  def offset(self, node: ast.AST) -> int:
    """Returns the offset of a node. Python counts columns in bytes."""
    before = self._lines[node.lineno - 1].encode("utf-8")[:node.col_offset]
    return self._starts[node.lineno - 1] + len(before.decode("utf-8"))

  def statement_ends(self) -> List[int]:
    """Returns the ends of simple statements, in order, without comments after them."""
    ends, last = [], 0
    for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
      if token.type == tokenize.NEWLINE or token.string == ";":
        ends.append(last)
      elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
        last = self._starts[token.end[0] - 1] + token.end[1]
    return ends


def _imports(program: SourceFile, text: _Text, replace_imports: Callable) -> List[_Edit]:
  """Returns the edits of import statements, each of which begins a line."""
  new = {}
  for replaced in replace_imports(ast.parse(program.text)):
    new.setdefault(replaced.line, []).append(replaced.new)
  edits, ends = [], text.statement_ends() if new else []
  for node in program.nodes:
    if isinstance(node, (ast.Import, ast.ImportFrom)) and len(new.get(node.lineno, ())) == 1:
      start = text.offset(node)
      end = ends[bisect.bisect_left(ends, start)]
      indent = text.text[text.text.rfind("\n", 0, start) + 1:start]
      # "import os, tensorflow as tf" becomes two statements.
      one_line = "; " if indent.strip() or text.text[end:end + 1] == ";" else "\n" + indent
      edits.append(_Edit(start, end, new.pop(node.lineno)[0].replace("; ", one_line)))
  return edits


def _old_names(program: SourceFile, text: _Text) -> List[_Edit]:
  """Returns the edits of old names that are written out: tf.mul, np.int."""
  edits = []
  for node in program.nodes:
    if not isinstance(node, ast.Attribute) or program.spelling_of(node) not in _SIMPLE:
      continue
    module, _, old = program.spelling_of(node).partition(".")
    start = text.offset(node)
    written = _DOTTED.match(text.text, start)
    count = old.count(".") + 1
    if written and written.group().split(".")[1:count + 1] == old.split("."):
      root, new = written.group().split(".")[0], _SIMPLE["%s.%s" % (module, old)]
      new = "%s.%s" % (root, new) if module == "tf" else new.replace("np.", root + ".")
      edits.append(_Edit(start, start + len(root) + 1 + len(old), new))
  return edits


def _cross_entropies(program: SourceFile, text: _Text) -> List[List[_Edit]]:
  """Returns the edits of each call of a cross entropy without names."""
  calls = []
  for call, _ in changed_rules.find_cross_entropies(program):
    if len(call.args) + len(call.keywords) <= len(_ARGUMENTS) and not any(
        isinstance(argument, ast.Starred) for argument in call.args):
      places = [text.offset(argument) for argument in call.args]
      calls.append([_Edit(place, place, name + "=") for place, name in zip(places, _ARGUMENTS)])
  return calls


def _apply(text: str, edits: List[_Edit]) -> str:
  for edit in sorted(edits, reverse=True):
    text = text[:edit.start] + edit.new + text[edit.end:]
  return text


def _parses(text: str) -> bool:
  try:
    ast.parse(text)
  except SyntaxError:
    return False
  return True
