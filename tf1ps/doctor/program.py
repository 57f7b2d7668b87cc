"""A program for the rules: its syntax tree, with the names of TensorFlow resolved.

Most rules call these methods:

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

UNKNOWN = object()  # the value of an expression that is known only when the program runs
_IGNORE = re.compile(r"#\s*tf1ps-doctor:\s*ignore\[([\w\s,-]*)\]")
# Names in the dump of a test or handler that guards the use of a name.
_VERSION = re.compile(r"'(__version__|VERSION|version|version_info|LooseVersion|hasattr)'")
_ABSENCE = re.compile(r"'(ImportError|ModuleNotFoundError|AttributeError|Exception)'")
_FLAG_MODULES = ("tf.app.flags.", "absl.flags.")


class UnreadableError(Error, ValueError):
  """A file is not Python."""


def read_program(path: str, text: str,
                 convert: Optional[Callable[[str], Tuple[str, List[int]]]] = None) -> SourceFile:
  """Parses a program.

  Args:
    path: the program's path, for the findings.
    text: the program's source.
    convert: for a source that is not Python 3: returns its text as Python 3, and for each line of
      that text the line of the source.

  Returns:
    The `SourceFile`.

  Raises:
    UnreadableError: the text is neither Python 3 nor, with `convert`, Python 2.
  """
  try:
    return SourceFile(path, text, ast.parse(text))
  except (SyntaxError, ValueError) as error:
    first = error
  try:
    if convert is not None:
      fixed, lines = convert(text)
      return SourceFile(path, text, ast.parse(fixed), lines)
  except (SyntaxError, ValueError):
    pass
  raise UnreadableError("%s:%s: %s" % (
    path, getattr(first, "lineno", None) or 1, getattr(first, "msg", None) or first))


class SourceFile:
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
    self._full_names = {}  # {the id of a list of bindings: the full name of all these bindings}
    self._names = {}  # {node: its names.Name, or None}
    self.nodes = self._scopes.nodes
    self._whole_names = self._imports = None  # the results of `names` and `imports`
    self._calls = {}  # {canonical name: the calls}
    for node in self.nodes:
      if isinstance(node, ast.Call):
        self._calls.setdefault(self.name_of(node.func), []).append(node)

  # Places.

  def place(self, node: ast.AST) -> Tuple[int, int]:
    """Returns the line and the column of a node, both from 1."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    if self._line_map is not None:  # the columns of converted lines differ
      return self._line_map[min(line, len(self._line_map)) - 1], 1
    text = self.lines[line - 1].encode("utf-8")[:column]  # Python counts bytes
    return line, len(text.decode("utf-8", "replace")) + 1

  def ignored_rules(self, line: int) -> Set[str]:
    """Returns the rules that a comment of this line turns off."""
    comment = _IGNORE.search(self.lines[line - 1]) if line <= len(self.lines) else None
    return set(re.split(r"[\s,]+", comment.group(1).strip())) if comment else set()

  def mentions(self, text: str) -> bool:
    """Whether the source contains a text, including in comments."""
    return any(text in line for line in self.lines)

  def parent(self, node: ast.AST) -> Optional[ast.AST]:
    """Returns the node around a node."""
    return self._scopes.parents.get(node)

  def enclosing(self, node: ast.AST, types) -> Optional[ast.AST]:
    """Returns the innermost node of these types around a node, or None."""
    return self._scopes.enclosing(node, types)

  def bindings(self, node: ast.AST) -> List[scopes.Binding]:
    """Returns all bindings of a name, or of a `self.name`."""
    return self._scopes.bindings(node)

  def single_value(self, node: Optional[ast.AST]) -> Optional[ast.AST]:
    """Returns the expression that a name is bound to, if it is bound once; else None."""
    bound = self._scopes.bindings(node)
    return bound[0].value if len(bound) == 1 else None

  # Names.

  def name_of(self, node: Optional[ast.AST]) -> Optional[str]:
    """Returns the canonical name of an expression, such as "tf.train.Server"; None if unknown."""
    name = self._name(node)
    return name and name.name

  def origin_of(self, node: Optional[ast.AST]) -> str:
    """Returns the package of an expression's root, such as `tf` in `tf.f(x).g`; "" if unknown.

    The method follows names that are bound to such expressions.
    """
    return self._origin(node, set())

  def spelling_of(self, node: Optional[ast.AST]) -> Optional[str]:
    """Returns the name of an expression as the program spells it: "tf.distribute.Server"."""
    name = self._name(node)
    return name and name.spelling

  def names(self) -> List[Tuple[ast.AST, str]]:
    """Returns each read of an imported name: the node, and the whole name, "tf.train.Server"."""
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

  def calls(self, *of: str) -> List[ast.Call]:
    """Returns the calls of functions with these canonical names."""
    return [call for name in of for call in self._calls.get(name, [])]

  def calls_below(self, *prefixes: str) -> Iterator[ast.Call]:
    """Yields the calls of functions whose canonical names begin with any of these prefixes."""
    for name, calls in self._calls.items():
      if name and name.startswith(prefixes):
        yield from calls

  def attribute_calls(self, *methods: str) -> List[ast.Call]:
    """Returns the calls `x.method(...)` for these names of methods and any x."""
    return [node for node in self.nodes if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute) and node.func.attr in methods]

  def uses(self, *of: str) -> Iterator[ast.AST]:
    """Yields the expressions with these canonical names, called or not."""
    for node in self.nodes:
      if isinstance(node, (ast.Name, ast.Attribute)) and self.name_of(node) in of:
        if isinstance(getattr(node, "ctx", None), ast.Load):
          yield node

  def imports(self) -> List[Tuple[ast.AST, str]]:
    """Returns the statement and the full name of each import, as written."""
    if self._imports is None:
      self._imports = [(node, full) for node in self.nodes for full in _imported(node)]
    return self._imports

  def is_guarded(self, node: ast.AST) -> bool:
    """Whether a program guards the use of a name: by a version, by `hasattr`, or by a `try`."""
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
    """Returns the canonical name of the function or class that made an expression's value."""
    call = self.call_of(node)
    return call and self.name_of(call.func)

  def call_of(self, node: Optional[ast.AST]) -> Optional[ast.Call]:
    """Returns the call that an expression is, or that its name is bound to; None if unknown.

    A further binding of the name to None is ignored.
    """
    for _ in range(9):  # x = z(); y = x: no program has a longer chain of names
      if isinstance(node, ast.Call):
        return node
      bound = self._scopes.bindings(node) if node is not None else []
      bound = [binding for binding in bound if not scopes.is_none(binding.value)]
      if len(bound) != 1 or bound[0].value is None:
        return None
      node = bound[0].value
    return None

  def method_calls(self, makers, *methods: str) -> Iterator[ast.Call]:
    """Yields the calls `x.method(...)` for an x that a call of one of `makers` made.

    `makers` is a canonical name, or several canonical names.
    """
    makers = (makers,) if isinstance(makers, str) else makers
    for call in self.attribute_calls(*methods):
      if self.made_by(call.func.value) in makers:
        yield call

  # Values.

  @staticmethod
  def argument(call: ast.Call, name: str, position: Optional[int] = None) -> Optional[ast.AST]:
    """Returns an argument of a call, by keyword or position (from 0); None if it is missing."""
    for keyword in call.keywords:
      if keyword.arg == name:
        return keyword.value
    before = call.args[:(position or 0) + 1]
    if position is None or len(before) <= position or any(
        isinstance(argument, ast.Starred) for argument in before):
      return None
    return before[position]

  @staticmethod
  def may_have_more(call: ast.Call) -> bool:
    """Whether a call has `*args` or `**kwargs`, which may hold any argument."""
    return (any(isinstance(argument, ast.Starred) for argument in call.args)
            or any(keyword.arg is None for keyword in call.keywords))

  def value_of(self, node: Optional[ast.AST], flags: bool = False):
    """Returns the value of a constant expression, else UNKNOWN.

    Args:
      node: the expression, which may be a name that is bound once.
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
    if not isinstance(node, ast.Attribute) or self.name_of(node.value) not in [
        module + "FLAGS" for module in _FLAG_MODULES]:
      return None
    for call in self.calls_below(*[module + "DEFINE_" for module in _FLAG_MODULES]):
      if self.value_of(self.argument(call, "name", 0)) == node.attr:
        return self.argument(call, "default", 1) or self.argument(call, "default_value", 1)
    return None

  # The resolution of names.

  def _name(self, node) -> Optional[names.Name]:
    if node not in self._names:
      full = self._full(node)
      self._names[node] = names.canonical(full) if full else None
    return self._names[node]

  def _full(self, node) -> Optional[str]:
    """Returns the full name of an expression, with its import: "tensorflow.train.Server"."""
    bound = self._scopes.bindings(node) if node is not None else []
    if bound:
      return self._full_of_bound(bound)
    if isinstance(node, ast.Attribute):
      full = self._full(node.value)
      return full and "%s.%s" % (full, node.attr)
    return None

  def _full_of_bound(self, bound: List[scopes.Binding]) -> Optional[str]:
    """Returns the full name of all bindings of a name; a stand-in while the search runs."""
    if id(bound) not in self._full_names:
      imported = [binding.imported for binding in bound if binding.imported]
      # In `tf = tf.compat.v1` the name on the right is the imported name.
      self._full_names[id(bound)] = imported and _agreed(imported) or ""
      fulls = imported
      for binding in bound:
        full = binding.imported or (self._full(binding.value) if isinstance(
          binding.value, (ast.Name, ast.Attribute)) else None)
        fulls = None if full is None else fulls + [full]
        if fulls is None:
          break
      self._full_names[id(bound)] = fulls and _agreed([full for full in fulls if full])
    return self._full_names[id(bound)]

  def _origin(self, node, seen) -> str:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      return names.canonical((_imported(node) + [""])[0]).origin
    name = self._name(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if name is not None:
      return name.origin
    if node is None or node in seen:
      return ""
    seen.add(node)
    for binding in self._scopes.bindings(node):
      origin = self._origin(binding.value, seen)
      if origin:
        return origin
    inner = getattr(node, "func", None) or getattr(node, "value", None)
    return self._origin(inner, seen) if isinstance(inner, ast.AST) else ""


def _agreed(fulls: List[str]) -> Optional[str]:
  """Returns the full name of all bindings of a name; None if they differ.

  If a binding is `tensorflow` and another is `tensorflow.compat.v1`, the latter counts.
  """
  if not fulls:
    return None
  meant = [names.canonical(full) for full in fulls]
  if len({name.name for name in meant}) > 1:
    return None
  return next((full for full, name in zip(fulls, meant) if name.origin != "tensorflow"), fulls[-1])


def _imported(node: ast.AST) -> List[str]:
  """Returns the full names that a statement imports by absolute imports."""
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if isinstance(node, ast.ImportFrom) and not node.level:
    return ["%s.%s" % (node.module, alias.name) for alias in node.names]
  return []


def _catches_absence(handler: ast.ExceptHandler) -> bool:
  return handler.type is None or bool(_ABSENCE.search(ast.dump(handler.type)))
