"""A program as the rules see it: its syntax tree, with the names of TensorFlow resolved.

A rule asks mostly these:

    for call in program.calls("tf.train.Server"):                  # by any import
      config = program.argument(call, "config", 4)                 # a node, or None
      program.value_of(config)                                     # a constant, or UNKNOWN
    for call in program.method_calls("tf.train.Server", "join"):   # server.join()
      ...
"""

from __future__ import annotations

import ast
import re
from typing import Callable, Iterator, List, Optional, Set, Tuple

from tf1ps.compat import Error
from tf1ps.doctor import names, scopes

UNKNOWN = object()  # the value of an expression that only running the program tells
_IGNORE = re.compile(r"#\s*tf1ps-doctor:\s*ignore\[([\w\s,-]*)\]")
# What a program looks for before it uses a thing, in the dump of a test.
_VERSION = re.compile(r"'(__version__|VERSION|version|version_info|LooseVersion|hasattr)'")
_ABSENCE = re.compile(r"'(ImportError|ModuleNotFoundError|AttributeError|Exception)'")
_FLAG_MODULES = ("tf.app.flags.", "absl.flags.")


class UnreadableError(Error, ValueError):
  """A file is no Python."""


def read_program(path: str, text: str,
                 mend: Optional[Callable[[str], Tuple[str, List[int]]]] = None) -> Program:
  """Parses a program.

  Args:
    path: its path, for the findings.
    text: its source.
    mend: for a source that is no Python 3: returns its text as Python 3, and for each of its
      lines the line of the source.

  Returns:
    The `Program`.

  Raises:
    UnreadableError: the text is neither Python 3 nor, with `mend`, Python 2.
  """
  try:
    return Program(path, text, ast.parse(text))
  except (SyntaxError, ValueError) as error:
    first = error
  try:
    if mend is not None:
      mended, lines = mend(text)
      return Program(path, text, ast.parse(mended), lines)
  except (SyntaxError, ValueError):
    pass
  raise UnreadableError("%s:%s: %s" % (
    path, getattr(first, "lineno", None) or 1, getattr(first, "msg", None) or first))


class Program:
  """A parsed program."""

  def __init__(self, path: str, text: str, tree: ast.Module,
               line_map: Optional[List[int]] = None):
    self.path = path
    self.text = text
    self.tree = tree
    self.lines = text.split("\n")
    self.is_python2 = line_map is not None
    self._line_map = line_map  # of each line of the tree: the line of the source
    self._scopes = scopes.Scopes(tree)
    self._full_names = {}  # {the id of a list of bindings: the full name that they agree in}
    self._names = {}  # {node: its names.Name, or None}
    self.nodes = self._scopes.nodes  # all of them
    self._whole_names = self._imports = None  # what `names` and `imports` return
    self._calls = {}  # {canonical name: the calls}
    for node in self.nodes:
      if isinstance(node, ast.Call):
        self._calls.setdefault(self.name_of(node.func), []).append(node)

  # Places.

  def place(self, node: ast.AST) -> Tuple[int, int]:
    """Returns the line and the column of a node, both from 1."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    if self._line_map is not None:  # columns of mended lines are others
      return self._line_map[min(line, len(self._line_map)) - 1], 1
    text = self.lines[line - 1].encode("utf-8")[:column]  # Python counts bytes
    return line, len(text.decode("utf-8", "replace")) + 1

  def ignored_rules(self, line: int) -> Set[str]:
    """Returns the rules that a comment of this line turns off."""
    found = _IGNORE.search(self.lines[line - 1]) if line <= len(self.lines) else None
    return set(re.split(r"[\s,]+", found.group(1).strip())) if found else set()

  def mentions(self, text: str) -> bool:
    """Whether a text stands somewhere in the source, be it in a comment."""
    return any(text in line for line in self.lines)

  def parent(self, node: ast.AST) -> Optional[ast.AST]:
    """Returns the node round a node."""
    return self._scopes.parents.get(node)

  def enclosing(self, node: ast.AST, types) -> Optional[ast.AST]:
    """Returns the innermost node of these types round a node, or None."""
    return self._scopes.enclosing(node, types)

  def bindings(self, node: ast.AST) -> List[scopes.Binding]:
    """Returns everything that a name, or a `self.name`, is bound to."""
    return self._scopes.bindings(node)

  # Names.

  def name_of(self, node: Optional[ast.AST]) -> Optional[str]:
    """Returns the canonical name of an expression, such as "tf.train.Server"; None if unknown."""
    found = self._name(node)
    return found and found.name

  def origin_of(self, node: Optional[ast.AST]) -> str:
    """Returns the package that an expression's root comes from: that of `tf` in `tf.f(x).g`.

    It looks through names that are bound to such expressions. It returns "" if unknown.
    """
    return self._origin(node, set())

  def spelling_of(self, node: Optional[ast.AST]) -> Optional[str]:
    """Returns the name of an expression as `name_of`, but "tf.distribute.Server" stays that."""
    found = self._name(node)
    return found and found.spelling

  def names(self) -> List[Tuple[ast.AST, str]]:
    """Returns each whole name of an import that is read, such as `tf.train.Server`, as spelled."""
    if self._whole_names is None:
      self._whole_names = list(self._find_names())
    return self._whole_names

  def _find_names(self) -> Iterator[Tuple[ast.AST, str]]:
    for node in self.nodes:
      if isinstance(getattr(node, "ctx", None), ast.Load) and not isinstance(
          self.parent(node), ast.Attribute):
        name = self.spelling_of(node)
        while name is None and isinstance(node, ast.Attribute):  # tf.mul(...).name
          node = node.value
          name = self.spelling_of(node)
        if name is not None:
          yield node, name

  def calls(self, *of: str) -> Iterator[ast.Call]:
    """Yields the calls of functions with these canonical names."""
    for name in of:
      yield from self._calls.get(name, [])

  def uses(self, *of: str) -> Iterator[ast.AST]:
    """Yields the expressions that are one of these canonical names, called or not."""
    for node in self.nodes:
      if isinstance(node, (ast.Name, ast.Attribute)) and self.name_of(node) in of:
        if isinstance(getattr(node, "ctx", None), ast.Load):
          yield node

  def imports(self) -> List[Tuple[ast.AST, str]]:
    """Returns the statement and the full name for each thing that is imported, as written."""
    if self._imports is None:
      self._imports = [(node, full) for node in self.nodes for full in _imported(node)]
    return self._imports

  def is_guarded(self, node: ast.AST) -> bool:
    """Whether a program asks before it uses a thing: by a version, by `hasattr`, or in a `try`."""
    while node is not None:
      outer = self.parent(node)
      if isinstance(outer, ast.Try) and node not in outer.finalbody and (
          any(_catches_absence(handler) for handler in outer.handlers)):
        return True
      if isinstance(outer, ast.ExceptHandler) and _catches_absence(outer):
        return True
      if isinstance(outer, (ast.If, ast.IfExp)) and node is not outer.test and (
          _VERSION.search(ast.dump(outer.test))):
        return True
      node = outer
    return False

  def made_by(self, node: Optional[ast.AST]) -> Optional[str]:
    """Returns the canonical name of the function or class whose call made an expression's value."""
    call = self.call_of(node)
    return call and self.name_of(call.func)

  def call_of(self, node: Optional[ast.AST]) -> Optional[ast.Call]:
    """Returns the call that an expression is, or that its name is bound to; None if unknown.

    A name that is None before is taken for what it is bound to then.
    """
    for _ in range(9):  # x = y = z(): as many names as anybody writes
      if isinstance(node, ast.Call):
        return node
      bound = self._scopes.bindings(node) if node is not None else []
      bound = [each for each in bound if not scopes.is_none(each.value)]
      if len(bound) != 1 or bound[0].value is None:
        return None
      node = bound[0].value
    return None

  def method_calls(self, makers, *methods: str) -> Iterator[ast.Call]:
    """Yields calls `x.method(...)` where a call of one of the makers made x.

    Args:
      makers: one canonical name, or several.
      *methods: the names of the methods; none stands for all of them.
    """
    makers = (makers,) if isinstance(makers, str) else makers
    for node in self.nodes:
      if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
          and (not methods or node.func.attr in methods)
          and self.made_by(node.func.value) in makers):
        yield node

  # Values.

  @staticmethod
  def argument(call: ast.Call, name: str, position: Optional[int] = None) -> Optional[ast.AST]:
    """Returns the argument of a call, by keyword or position (from 0); None if it is not there."""
    for keyword in call.keywords:
      if keyword.arg == name:
        return keyword.value
    before = call.args[:(position or 0) + 1]
    if position is None or len(before) <= position or any(
        isinstance(each, ast.Starred) for each in before):
      return None
    return before[position]

  @staticmethod
  def may_have_more(call: ast.Call) -> bool:
    """Whether a call has `*args` or `**kwargs`, which may hold any argument."""
    return (any(isinstance(each, ast.Starred) for each in call.args)
            or any(keyword.arg is None for keyword in call.keywords))

  def value_of(self, node: Optional[ast.AST], flags: bool = False):
    """Returns the constant that an expression is, else UNKNOWN.

    Args:
      node: the expression. It may be a name that is bound once.
      flags: whether `FLAGS.name` has the flag's default.
    """
    for _ in range(9):
      if node is None:
        return UNKNOWN
      try:
        return ast.literal_eval(node)
      except ValueError:
        pass
      default = self._flag_default(node) if flags else None
      bound = self._scopes.bindings(node)
      if default is not None:
        node = default
      elif len(bound) == 1 and not isinstance(bound[0].statement, (ast.With, ast.AsyncWith)):
        node = bound[0].value
      else:
        return UNKNOWN
    return UNKNOWN

  def _flag_default(self, node) -> Optional[ast.AST]:
    """Returns the default of a flag for `FLAGS.name`."""
    if not isinstance(node, ast.Attribute) or not self._is_flags(node.value):
      return None
    for name, calls in self._calls.items():
      if name and name.startswith(_FLAG_MODULES) and ".DEFINE_" in name:
        for call in calls:
          if self.value_of(self.argument(call, "name", 0)) == node.attr:
            return self.argument(call, "default", 1) or self.argument(call, "default_value", 1)
    return None

  def _is_flags(self, node) -> bool:
    return self.name_of(node) in [module + "FLAGS" for module in _FLAG_MODULES]

  # How names are resolved.

  def _name(self, node) -> Optional[names.Name]:
    if node not in self._names:
      full = self._full(node)
      self._names[node] = names.canonical(full) if full else None
    return self._names[node]

  def _full(self, node) -> Optional[str]:
    """Returns the name of an expression from the import on: "tensorflow.train.Server"."""
    bound = self._scopes.bindings(node) if node is not None else []
    if bound:
      return self._full_of_bound(bound)
    if isinstance(node, ast.Attribute):
      full = self._full(node.value)
      return full and "%s.%s" % (full, node.attr)
    return None

  def _full_of_bound(self, bound: List[scopes.Binding]) -> Optional[str]:
    """Returns the full name that the bindings of a name agree in; "" while it is looked for."""
    if id(bound) not in self._full_names:
      imported = [each.imported for each in bound if each.imported]
      # In `tf = tf.compat.v1` the right side is what was imported.
      self._full_names[id(bound)] = imported and _agreed(imported) or ""
      found = imported
      for each in bound:
        full = each.imported or (self._full(each.value) if isinstance(
          each.value, (ast.Name, ast.Attribute)) else None)
        found = None if full is None else found + [full]
        if found is None:
          break
      self._full_names[id(bound)] = found and _agreed([full for full in found if full])
    return self._full_names[id(bound)]

  def _origin(self, node, seen) -> str:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      return names.canonical((_imported(node) + [""])[0]).origin
    found = self._name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if found is not None:
      return found.origin
    if node is None or node in seen:
      return ""
    seen.add(node)
    for each in self._scopes.bindings(node):
      origin = self._origin(each.value, seen)
      if origin:
        return origin
    inner = getattr(node, "func", None) or getattr(node, "value", None)
    return self._origin(inner, seen) if isinstance(inner, ast.AST) else ""


def _agreed(fulls: List[str]) -> Optional[str]:
  """Returns the full name that all bindings of a name mean; None if they differ.

  Where one of them is `tensorflow` and another one `tensorflow.compat.v1`, it is the latter.
  """
  if not fulls:
    return None
  found = [names.canonical(full) for full in fulls]
  if len({each.name for each in found}) > 1:
    return None
  return next((full for full, each in zip(fulls, found) if each.origin != "tensorflow"), fulls[-1])


def _imported(node: ast.AST) -> List[str]:
  """Returns the full names that a statement imports from elsewhere."""
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if isinstance(node, ast.ImportFrom) and not node.level:
    return ["%s.%s" % (node.module, alias.name) for alias in node.names]
  return []


def _catches_absence(handler: ast.ExceptHandler) -> bool:
  return handler.type is None or bool(_ABSENCE.search(ast.dump(handler.type)))
