"""Converts Python 2: print statements, xrange, iteritems, old exceptions, moved modules.

The library fissix does it in memory: the maintained fork of Python's lib2to3, which Python 3.13 no
longer has. `_convert_names` converts names that fissix does not know. Code that Python 3 runs with
another result, such as the division of integers, stays as it is and gets a remark.
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

# fix_import would make `import helper` relative, which fails in a script. fix_future drops imports
# from __future__ of Python 3, such as `annotations`.
_UNWANTED = {"fix_import", "fix_future"}
# Right for Python 2 alone, where `input` is another function.
_ONLY_PYTHON2 = {"fix_input"}
_CACHE = "XDG_CACHE_HOME"
# Text is always Unicode in Python 3, and a reload of sys would undo the changes of others to it.
_DEFAULT_ENCODING = re.compile(r"\bsys\.setdefaultencoding\([^()]*\)|(?<![\w.])reload\(sys\)")
# The values of an HParams are a dict, which needs no list around it; its name or its use tells.
_VALUES_OF_HPARAMS = re.compile(
  r"(?i)(?:(?<=hparams)|(?<=\bhps))\.values\(\)"
  r"|\.values\(\)(?=\.(?:iter)?(?:items|keys|values)\(|\[['\"])")
_HIDDEN_VALUES = "values_of_hparams"
# Names that are keywords since Python 3.7. Python looks for keywords before it turns the wide
# letter into an "a", so these stay names of variables, attributes and arguments.
_KEYWORDS = {"async": "\uff41sync", "await": "\uff41wait"}
_DIVISION = "`/` keeps the fraction in Python 3: write // where integers are divided"
# The lines at which Python 3 stops, and the messages of its other errors. A statement begins at the
# begin of a line, or behind a colon or semicolon outside of strings.
_BEGIN = r"^(?:(?:[^'\"#]|'[^']*'|\"[^\"]*\")*[:;])?\s*"
_LINE = re.compile(
  _BEGIN + r"(?:(print|exec)\s+[^=(\s.]|print\s*\(.*\)\s*[%,]|print\s*>>|raise\s+[\w.]+\s*,)"
  r"|\bexcept\b[^:]*,\s*\w+\s*:|`|<>|\b0[0-7]+\b|\b(0[xX])?[0-9a-fA-F]+[lL]\b|\b[uU][rR]['\"]"
  r"|\bdef\s+\w+\s*\([^:]*[(,]\s*\(|\blambda\b[^:]*\("
  r"|[.(,]\s*(async|await)\b|\b(async|await)\s*=|\bimport\s+(async|await)\b")
_LAZY = r"'?\"?(map|filter|zip|range|dict_(keys|values|items))\"?'?"  # lists in Python 2
_MESSAGE = re.compile(
  r"^object of type " + _LAZY + r" has no len"
  r"|^" + _LAZY + r" object (is not subscriptable|has no attribute|does not support item)"
  r"|^can only concatenate list \(not " + _LAZY + r"|^unsupported operand .* for \+: .*" + _LAZY +
  r"|^name '(basestring|execfile|file|long|raw_input|reduce|reload|unichr|unicode|xrange)' is not "
  r"defined"
  r"|^'\w+' object has no attribute '(has_key|iter(items|keys|values)|next)'"
  r"|^No module named '(__builtin__|ConfigParser|cPickle|c?StringIO|Queue|urllib2|urlparse)'"
  r"|^unsupported operand type\(s\) for (>>: 'builtin_function_or_method'|%: 'NoneType')"
  r"|^module 'sys' has no attribute '(maxint|setdefaultencoding)'"
  r"|^module 'time' has no attribute 'clock'|^cannot import name 'clock' from 'time'"
  r"|^module 'string' has no attribute '(join|letters|maketrans|split)'"
  r"|^module 'urllib' has no attribute '(quote|unquote|urlencode|urlopen|urlretrieve)'")


class MissingLibraryError(Error, RuntimeError):
  """The library that converts Python 2 is not installed."""


class Converted(NamedTuple):
  """A file after conversion."""

  text: str
  lines: List[int]  # for each line of `text` the line of the file
  changed: List[Replacement]  # the changed lines
  remarks: List[Tuple[int, str]]  # the line, and the difference to Python 2 there


def looks_like_python2(error: BaseException) -> bool:
  """Whether an error comes from Python 2."""
  if isinstance(error, SyntaxError):
    return isinstance(error, TabError) or bool(_LINE.search(error.text or ""))
  return (isinstance(error, (NameError, AttributeError, ImportError, TypeError))
          and bool(_MESSAGE.search(str(error))))


class Python2:
  """Converts sources."""

  def __init__(self):
    """Makes the converter; raises MissingLibraryError if fissix is not installed."""
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
    self._tools = {}  # {whether the files are Python 3: the tool for them}

  def convert(self, text: str) -> Converted:
    """Converts a file; a text that is neither Python 2 nor Python 3 stays as it is."""
    old = text if text.endswith("\n") else text + "\n"
    try:
      tree = self._tool(_is_python3(old)).refactor_string(_hide(old), "program")
    except Exception:  # fissix raises errors of several kinds for text that it cannot parse
      return Converted(old, list(range(1, old.count("\n") + 2)), [], [])
    self._convert_names(tree)
    lines = _line_map(tree, old.count("\n") + 1)
    new = shown = self._text(tree)
    for keyword, free in _KEYWORDS.items():
      shown = shown.replace(free, keyword)
    changed = _changed(old.split("\n"), shown.split("\n"), lines)
    return Converted(new, lines, changed, _divisions(new, lines) if changed else [])

  def _tool(self, is_python3: bool):
    if is_python3 not in self._tools:
      left_out = _ONLY_PYTHON2 if is_python3 else set()
      self._tools[is_python3] = self._refactor.RefactoringTool(
        ["fissix.fixes." + name for name in self._fixers if name not in left_out],
        {"print_function": is_python3})
    return self._tools[is_python3]

  def _convert_names(self, tree) -> None:
    """Converts Python 2's `file`, and `time.clock`, which Python 3.8 no longer has."""
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
    """Whether the program itself binds the name of a leaf in a scope that the leaf sees."""
    node = leaf
    while node.parent is not None:
      node = node.parent
      # The arguments of a function or a lambda, and the name of a function.
      head = node.children[1:-2] if str(node.children[0]).strip() in ("def", "lambda") else []
      if self._find_binding(leaf.value, node) or any(
          inner.value == leaf.value for part in head for inner in part.leaves()):
        return True
    return False

  def _text(self, tree) -> str:
    """Returns a converted tree as text; renames keywords and replaces tabs if it must."""
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
    """Indents with blanks alone. In Python 2 a tab leads to the next multiple of eight columns."""
    in_strings = set()
    for kind, _, (first, _), (last, _), _ in self._tokenize.generate_tokens(
        io.StringIO(text).readline):
      if self._tokenize.tok_name[kind] == "STRING":
        in_strings.update(range(first + 1, last + 1))
    return "".join(
      line if number in in_strings else re.sub(r"^[ \t]+", lambda m: m.group().expandtabs(8), line)
      for number, line in enumerate(io.StringIO(text), 1))


def _hide(text: str) -> str:
  """Hides text from fissix that it would convert in a wrong way."""
  return _VALUES_OF_HPARAMS.sub(".%s()" % _HIDDEN_VALUES, _DEFAULT_ENCODING.sub("None", text))


def _is_called(leaf) -> bool:
  return leaf.parent.children[0] is leaf and str(leaf.next_sibling).lstrip().startswith("(")


def _is_imported_from(leaf, module: str) -> bool:
  """Whether a leaf is a name in `from module import name`, and not a new name behind `as`."""
  node = leaf.parent
  while node is not None and str(node.children[0]).strip() != "from":
    node = node.parent
  return (node is not None and str(node.children[1]).strip() == module
          and str(leaf.prev_sibling).strip() != "as")


@contextlib.contextmanager
def _cache_elsewhere():
  """Keeps the grammar of fissix out of the user's cache directory, which may not be writable."""
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
  """Whether a file is Python 3. `print >>f, x` and `print (text) % x` parse, too, but are not."""
  tree = _parse(text)
  operands = [node.left for node in ast.walk(tree or ast.Module())
              if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.RShift, ast.Mod))]
  return tree is not None and not any(
    getattr(getattr(left, "func", left), "id", "") == "print" for left in operands)


def _line_map(tree, old_count: int) -> List[int]:
  """Returns the old line of each new line, from the old lines of fissix's tokens."""
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
  """Returns the lines that have changed or have become several lines."""
  now = {}
  for line, text in zip(lines, new):
    now.setdefault(line, []).append(text)
  return [Replacement(line, old[line - 1].strip(), "; ".join(text.strip() for text in texts))
          for line, texts in sorted(now.items()) if texts != [old[line - 1]]]


def _divisions(text: str, lines: List[int]) -> List[Tuple[int, str]]:
  """Returns a remark for each line that may divide integers."""
  tree = _parse(text)
  if tree is None or any(isinstance(node, ast.ImportFrom) and node.module == "__future__"
                         and "division" in [alias.name for alias in node.names]
                         for node in tree.body):
    return []
  numbers = {lines[node.lineno - 1] for node in ast.walk(tree)
             if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)
             and not any(map(_is_float, ast.walk(node)))}
  return [(line, _DIVISION) for line in sorted(numbers)]


def _is_float(node) -> bool:
  """Whether a node is a number with a fraction, or a call of float."""
  if isinstance(node, ast.Call):
    return getattr(node.func, "id", "") == "float"
  value = "value" if hasattr(node, "value") else "n"  # Python 3.7 has ast.Num
  return isinstance(getattr(node, value, None), float)
