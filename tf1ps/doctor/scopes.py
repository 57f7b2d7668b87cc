"""The values of a program's names, by scope, without running it.

A name may be bound several times, such as in both arms of a `try`. Its value is known only if all
of its bindings agree.
"""

from __future__ import annotations

import ast
from typing import Dict, List, NamedTuple, Optional, Tuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (ast.Module, ast.ClassDef) + _FUNCTIONS


class Binding(NamedTuple):
  """A binding of a name: by an import, by an expression, or by something else."""

  imported: Optional[str] = None  # the full name: "tensorflow.compat.v1"
  value: Optional[ast.AST] = None  # the expression; for an `as`, the expression of its `with`
  statement: Optional[ast.AST] = None  # the statement that binds the name


class Scopes:
  """The bindings of a parsed file."""

  def __init__(self, tree: ast.Module):
    self.parents: Dict[ast.AST, ast.AST] = {}
    self.nodes: List[ast.AST] = [tree]
    for node in self.nodes:  # the list grows, level by level
      for child in ast.iter_child_nodes(node):
        # Python shares the nodes of contexts and operators, so these nodes have no unique parent.
        if not isinstance(child, (ast.expr_context, ast.operator, ast.cmpop)):
          self.parents[child] = node
          self.nodes.append(child)
    self._bindings: Dict[Tuple[ast.AST, str], List[Binding]] = {}
    self._globals = {(self.scope_of(node), name) for node in self.nodes
                     if isinstance(node, ast.Global) for name in node.names}
    self._tree = tree
    for node in self.nodes:
      self._bind_all(node)

  def scope_of(self, node: ast.AST) -> ast.AST:
    """Returns the function, class or module that contains a node."""
    return self.enclosing(node, _SCOPES)

  def enclosing(self, node: ast.AST, types) -> Optional[ast.AST]:
    """Returns the innermost node of these types that encloses a node, or None."""
    node = self.parents.get(node)
    while node is not None and not isinstance(node, types):
      node = self.parents.get(node)
    return node

  def bindings(self, node: ast.AST) -> List[Binding]:
    """Returns the bindings of a name or of `self.name` that are visible in the name's scope."""
    name = dotted(node)
    if name is None:
      return []
    own = scope = self.scope_of(node)
    while scope is not None:
      bindings = self._bindings.get((scope, name), [])
      # A method does not see the names of its class, only those of `self`.
      if bindings and (not isinstance(scope, ast.ClassDef) or scope is own or "." in name):
        return bindings
      scope = self.scope_of(scope)
    return []

  def _bind(self, node: ast.AST, name: str, binding: Binding) -> None:
    scope = self.scope_of(node)
    if "." in name:
      scope = self.enclosing(node, ast.ClassDef) or scope
    elif (scope, name) in self._globals:
      scope = self._tree
    self._bindings.setdefault((scope, name), []).append(binding)

  def _bind_all(self, node: ast.AST) -> None:
    if isinstance(node, ast.Import):
      for alias in node.names:
        name = alias.asname or alias.name.split(".")[0]
        full = alias.name if alias.asname else name
        self._bind(node, name, Binding(imported=full, statement=node))
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        full = "%s%s.%s" % ("." * node.level, node.module or "", alias.name)
        self._bind(node, alias.asname or alias.name, Binding(imported=full, statement=node))
    elif isinstance(node, ast.Assign):
      for target in node.targets:
        self._bind_target(target, node.value, node)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
      self._bind_target(node.target, node.value, node)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
      self._bind_target(node.optional_vars, node.context_expr, self.parents[node])
    elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension)):
      self._bind_target(node.target, None, node)
    elif isinstance(node, ast.arg):
      # The arguments of a function belong to its scope.
      self._bindings.setdefault((self.scope_of(node), node.arg), []).append(Binding(statement=node))
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      self._bind(node, node.name, Binding(statement=node))
    elif isinstance(node, ast.ExceptHandler) and node.name:
      self._bind(node, node.name, Binding(statement=node))

  def _bind_target(self, target: ast.AST, value: Optional[ast.AST], statement: ast.AST) -> None:
    if isinstance(target, (ast.Tuple, ast.List)):
      values = getattr(value, "elts", [])
      if len(values) != len(target.elts):
        values = [None] * len(target.elts)
      for element, element_value in zip(target.elts, values):
        self._bind_target(element, element_value, statement)
      return
    name = dotted(target)
    if name is not None:
      self._bind(target, name, Binding(value=value, statement=statement))


def is_none(node: Optional[ast.AST]) -> bool:
  """Whether an expression is the constant None."""
  # Python 3.7 has a separate type for this constant.
  return type(node).__name__ in ("Constant", "NameConstant") and node.value is None


def dotted(node: ast.AST) -> Optional[str]:
  """Returns `name` or `self.name` as text; None for other expressions."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
    return "self." + node.attr
  return None
