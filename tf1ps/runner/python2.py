"""Mends Python 2: print statements, xrange, iteritems, old exceptions, moved modules.

The library fissix does it: the kept fork of Python's lib2to3, which Python 3.13 no longer has. It
works in memory. `_mend_names` mends what fissix does not know. What means something else in
Python 3 without being wrong there, such as the division of integers, stays as it is and becomes a
remark.
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
# The values of an HParams are a dict: no list goes around them. Its name tells, or their use.
_VALUES_OF_HPARAMS = re.compile(
  r"(?i)(?:(?<=hparams)|(?<=\bhps))\.values\(\)"
  r"|\.values\(\)(?=\.(?:iter)?(?:items|keys|values)\(|\[['\"])")
_HIDDEN_VALUES = "values_of_hparams"
# Names that are keywords since Python 3.7. Python knows keywords before it turns the wide letter
# into an "a", so these are names: of variables, attributes and arguments.
_KEYWORDS = {"async": "\uff41sync", "await": "\uff41wait"}
_DIVISION = "`/` keeps the fraction in Python 3: write // where integers are divided"
# The text of a line at which Python 3 stops, and the messages of its other errors.
_LINE = re.compile(
  r"^\s*(print|exec)\s+[^=(\s.]|^\s*print\s*\(.*\)\s*[%,]|^\s*print\s*>>|\bexcept\b[^:]*,\s*\w+\s*:"
  r"|^\s*raise\s+[\w.]+\s*,|`|<>|\b0[0-7]+\b|\b(0[xX])?[0-9a-fA-F]+[lL]\b|\b[uU][rR]['\"]"
  r"|\bdef\s+\w+\s*\([^:]*[(,]\s*\(|\blambda\b[^:]*\("
  r"|[.(,]\s*(async|await)\b|\b(async|await)\s*=|\bimport\s+(async|await)\b")
_MESSAGE = re.compile(
  r"^name '(basestring|execfile|file|long|raw_input|reduce|reload|unichr|unicode|xrange)' is not "
  r"defined"
  r"|^'\w+' object has no attribute '(has_key|iter(items|keys|values)|next)'"
  r"|^No module named '(__builtin__|ConfigParser|cPickle|c?StringIO|Queue|urllib2|urlparse)'"
  r"|^unsupported operand type\(s\) for (>>: 'builtin_function_or_method'|%: 'NoneType')"
  r"|^module 'sys' has no attribute '(maxint|setdefaultencoding)'"
  r"|^module 'time' has no attribute 'clock'|^cannot import name 'clock' from 'time'"
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
      self._find_binding = importlib.import_module("fissix.fixer_util").find_binding
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
      tree = self._tool(_is_python3(old)).refactor_string(_hide(old), "program")
    except Exception:  # fissix raises errors of several kinds for text that it cannot parse
      return Mended(old, list(range(1, old.count("\n") + 2)), [], [])
    self._mend_names(tree)
    lines = _line_map(tree, old.count("\n") + 1)
    new = self._text(tree)
    changed = _changed(old.split("\n"), _keywords_as_they_were(new).split("\n"), lines)
    return Mended(new, lines, changed, _divisions(new, lines) if changed else [])

  def _tool(self, is_python3: bool):
    if is_python3 not in self._tools:
      left_out = _ONLY_PYTHON2 if is_python3 else set()
      self._tools[is_python3] = self._refactor.RefactoringTool(
        ["fissix.fixes." + name for name in self._fixers if name not in left_out],
        {"print_function": is_python3})
    return self._tools[is_python3]

  def _mend_names(self, tree) -> None:
    """Mends Python 2's `file`, and `time.clock`, which Python 3.8 no longer has."""
    before = [""] * 3
    for leaf in tree.leaves():
      if leaf.value == "file" and _is_called(leaf) and not self._is_own_name(leaf):
        leaf.value = "open"
      elif leaf.value == "clock" and before[1:] == ["time", "."] and before[0] != ".":
        leaf.value = "perf_counter"
      elif leaf.value == "clock" and _is_imported_from(leaf, "time"):
        is_renamed = str(leaf.next_sibling).strip() == "as"
        leaf.value = "perf_counter" + ("" if is_renamed else " as clock")
      before = [*before[1:], leaf.value]

  def _is_own_name(self, leaf) -> bool:
    """Whether the program gives the name of a leaf to something of its own, as seen from there."""
    node = leaf
    while node.parent is not None:
      node = node.parent
      # A function's or a lambda's arguments; for a function also its name.
      head = node.children[1:-2] if str(node.children[0]).strip() in ("def", "lambda") else []
      if self._find_binding(leaf.value, node) or any(
          each.value == leaf.value for part in head for each in part.leaves()):
        return True
    return False

  def _text(self, tree) -> str:
    """Returns a mended tree as text; keywords are freed and tabs replaced if it needs that."""
    text = str(tree).replace(_HIDDEN_VALUES, "values")
    if _parse(text) is not None:
      return text
    for leaf in tree.leaves():
      leaf.value = _KEYWORDS.get(leaf.value, leaf.value)
    freed = str(tree).replace(_HIDDEN_VALUES, "values")
    if _parse(freed) is None:
      freed = self._without_tabs(freed)
    return text if _parse(freed) is None else freed

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


def _hide(text: str) -> str:
  """Hides from fissix what it would mend in a wrong way."""
  return _VALUES_OF_HPARAMS.sub(
    ".%s()" % _HIDDEN_VALUES, _DEFAULT_ENCODING.sub("None", text))


def _is_called(leaf) -> bool:
  return leaf.parent.children[0] is leaf and str(leaf.next_sibling).lstrip().startswith("(")


def _is_imported_from(leaf, module: str) -> bool:
  """Whether a leaf is a name in `from module import name`, and not a new name behind `as`."""
  node = leaf.parent
  while node is not None and str(node.children[0]).strip() != "from":
    node = node.parent
  return (node is not None and str(node.children[1]).strip() == module
          and str(leaf.prev_sibling).strip() != "as")


def _keywords_as_they_were(text: str) -> str:
  for keyword, free in _KEYWORDS.items():
    text = text.replace(free, keyword)
  return text


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
