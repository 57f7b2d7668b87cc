"""Mends Python 2: print statements, xrange, iteritems, old exceptions, moved modules.

The library fissix does it: the kept fork of Python's lib2to3, which Python 3.13 no longer has. It
works in memory. What means something else in Python 3 without being wrong there, such as the
division of integers, stays as it is and becomes a remark.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import pkgutil
import re
import tempfile
from typing import List, NamedTuple, Optional, Tuple

from tf1ps.compat import Error
from tf1ps.runner.imports import Replacement

# fix_import would make `import helper` relative, which fails in a script. fix_future drops
# `annotations` and others of Python 3.
_UNWANTED = {"fix_import", "fix_future"}
# Right in Python 2 alone: `input` is another function there.
_ONLY_PYTHON2 = {"fix_input"}
_CACHE = "XDG_CACHE_HOME"
# Text is always Unicode in Python 3, and a reload of sys would undo what others have set there.
_DEFAULT_ENCODING = re.compile(r"\bsys\.setdefaultencoding\([^()]*\)|(?<![\w.])reload\(sys\)")
_DIVISION = "`/` keeps the fraction in Python 3: write // where integers are divided"
# The text of a line at which Python 3 stops, and the messages of its other errors.
_LINE = re.compile(
  r"^\s*(print|exec)\s+[^=(\s.]|^\s*print\s*\(.*\)\s*[%,]|^\s*print\s*>>|\bexcept\b[^:]*,\s*\w+\s*:"
  r"|^\s*raise\s+[\w.]+\s*,|`|<>|\b0[0-7]+\b|\b(0[xX])?[0-9a-fA-F]+[lL]\b|\b[uU][rR]['\"]"
  r"|\bdef\s+\w+\s*\([^:]*[(,]\s*\(|\blambda\b[^:]*\(")
_MESSAGE = re.compile(
  r"^name '(basestring|execfile|long|raw_input|reduce|reload|unichr|unicode|xrange)' is not defined"
  r"|^'\w+' object has no attribute '(has_key|iter(items|keys|values)|next)'"
  r"|^No module named '(__builtin__|ConfigParser|cPickle|c?StringIO|Queue|urllib2|urlparse)'"
  r"|^unsupported operand type\(s\) for (>>: 'builtin_function_or_method'|%: 'NoneType')"
  r"|^module 'sys' has no attribute '(maxint|setdefaultencoding)'"
  r"|^module 'string' has no attribute '(join|letters|maketrans|split)'"
  r"|^module 'urllib' has no attribute '(quote|unquote|urlencode|urlopen|urlretrieve)'")


class MissingLibraryError(Error, RuntimeError):
  """The library that mends Python 2 is not installed."""


class Mended(NamedTuple):
  """A file after mending."""

  text: str
  lines: List[int]  # of each line of `text`: the line of the file that it stands for
  changed: List[Replacement]  # the changed lines
  remarks: List[Tuple[int, str]]  # the line, and what differs from Python 2 there


def looks_like_python2(error: BaseException) -> bool:
  """Whether an error comes from Python 2."""
  if isinstance(error, SyntaxError):
    return isinstance(error, TabError) or bool(_LINE.search(error.text or ""))
  return (isinstance(error, (NameError, AttributeError, ImportError, TypeError))
          and bool(_MESSAGE.search(str(error))))


class Python2:
  """Mends sources."""

  def __init__(self):
    """Makes the mender.

    Raises:
      MissingLibraryError: fissix is not installed.
    """
    try:
      with _cache_elsewhere():
        self._refactor = importlib.import_module("fissix.refactor")
      self._tokenize = importlib.import_module("fissix.pgen2.tokenize")
      fixes = importlib.import_module("fissix.fixes")
    except ImportError as error:
      raise MissingLibraryError(
        "--2to3 needs the library fissix: pip install 'tf1ps[legacy]'") from error
    self._fixers = [module.name for module in pkgutil.iter_modules(fixes.__path__)
                    if module.name.startswith("fix_") and module.name not in _UNWANTED]
    self._tools = {}  # {whether it is for files that are Python 3: the tool}

  def mend(self, text: str) -> Mended:
    """Mends a file; its text stays where it is neither Python 2 nor Python 3."""
    old = text if text.endswith("\n") else text + "\n"
    try:
      tree = self._tool(_is_python3(old)).refactor_string(
        _DEFAULT_ENCODING.sub("None", old), "program")
    except Exception:  # fissix raises errors of several kinds for text that it cannot parse
      return Mended(old, list(range(1, old.count("\n") + 2)), [], [])
    new = str(tree)
    if _parse(new) is None:
      new = self._without_tabs(new)
    lines = _line_map(tree, old.count("\n") + 1)
    changed = _changed(old.split("\n"), new.split("\n"), lines)
    return Mended(new, lines, changed, _divisions(new, lines) if changed else [])

  def _tool(self, is_python3: bool):
    if is_python3 not in self._tools:
      left_out = _ONLY_PYTHON2 if is_python3 else set()
      self._tools[is_python3] = self._refactor.RefactoringTool(
        ["fissix.fixes." + name for name in self._fixers if name not in left_out],
        {"print_function": is_python3})
    return self._tools[is_python3]

  def _without_tabs(self, text: str) -> str:
    """Indents with blanks alone. Python 2 took a tab for blanks up to the next column of eight."""
    in_strings = set()
    for kind, _, (first, _), (last, _), _ in self._tokenize.generate_tokens(
        io.StringIO(text).readline):
      if self._tokenize.tok_name[kind] == "STRING":
        in_strings.update(range(first + 1, last + 1))
    return "".join(
      line if number in in_strings else re.sub(r"^[ \t]+", lambda m: m.group().expandtabs(8), line)
      for number, line in enumerate(io.StringIO(text), 1))


@contextlib.contextmanager
def _cache_elsewhere():
  """Has fissix keep its grammar out of the user's cache directory, which may not be writable."""
  before = os.environ.get(_CACHE)
  with tempfile.TemporaryDirectory() as folder:
    os.environ[_CACHE] = folder
    try:
      yield
    finally:
      del os.environ[_CACHE]
      if before is not None:
        os.environ[_CACHE] = before


def _parse(text: str) -> Optional[ast.Module]:
  """Parses Python 3; None for other text."""
  try:
    return ast.parse(text)
  except SyntaxError:
    return None


def _is_python3(text: str) -> bool:
  """Whether a file is Python 3; `print >>f, x` and `print (text) % x` are for the parser alone."""
  tree = _parse(text)
  operands = [node.left for node in ast.walk(tree or ast.Module())
              if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.RShift, ast.Mod))]
  return tree is not None and not any(
    getattr(getattr(left, "func", left), "id", "") == "print" for left in operands)


def _line_map(tree, old_count: int) -> List[int]:
  """Returns the old line of each new line. fissix keeps the old line of each token."""
  known, with_new_tokens, number = {}, set(), 1
  for leaf in tree.leaves():
    number += leaf.prefix.count("\n")
    if leaf.lineno > 0:
      for i, _ in enumerate(leaf.value.splitlines()):
        known.setdefault(number + i, leaf.lineno + i)
    elif leaf.value.strip():
      with_new_tokens.add(number)
    number += leaf.value.count("\n")
  known[number + 1] = old_count + 1
  lines, last = [], 0
  for number in sorted(known):
    for i in range(1, number - len(lines)):
      if len(lines) + 1 in with_new_tokens:
        lines.append(min(known[number], old_count))
      else:  # blank, or a comment
        lines.append(max(min(last + i, known[number] - 1), last, 1))
    last = known[number]
    lines.append(last)
  return lines[:-1]


def _changed(old: List[str], new: List[str], lines: List[int]) -> List[Replacement]:
  """Returns the changed lines, and those that became several."""
  now = {}
  for line, text in zip(lines, new):
    now.setdefault(line, []).append(text)
  return [Replacement(line, old[line - 1].strip(), "; ".join(text.strip() for text in texts))
          for line, texts in sorted(now.items()) if texts != [old[line - 1]]]


def _divisions(text: str, lines: List[int]) -> List[Tuple[int, str]]:
  """Returns a remark for each line that may divide integers."""
  tree = _parse(text)
  if tree is None or _has_new_division(tree):
    return []
  found = {lines[node.lineno - 1] for node in ast.walk(tree)
           if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)
           and not any(map(_is_float, ast.walk(node)))}
  return [(line, _DIVISION) for line in sorted(found)]


def _has_new_division(tree: ast.Module) -> bool:
  return any(isinstance(node, ast.ImportFrom) and node.module == "__future__"
             and "division" in [alias.name for alias in node.names] for node in tree.body)


def _is_float(node) -> bool:
  """Whether a node is a number with a fraction, or a call of float."""
  if isinstance(node, ast.Call):
    return getattr(node.func, "id", "") == "float"
  value = "value" if hasattr(node, "value") else "n"  # Python 3.7 has ast.Num
  return isinstance(getattr(node, value, None), float)
