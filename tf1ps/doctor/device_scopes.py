"""Finds the device scopes around a place in a program, and around the calls that lead there."""

from __future__ import annotations

import ast
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from tf1ps.doctor import jobs, texts

SETTER = "setter"  # tf.train.replica_device_setter
DEVICE = "device"  # a text
UNKNOWN = "unknown"  # a function, or a value that is known only when the program runs
_APP_RUN = ("tf.app.run", "absl.app.run", "tf.compat.v1.app.run")


class Scope(NamedTuple):
  """A device scope."""

  kind: str
  node: ast.AST  # the argument of tf.device
  text: str = ""  # of a DEVICE: "/job:worker/task:*"


class Way(NamedTuple):
  """A chain of calls by which a program reaches a place."""

  scopes: List[Scope]  # the innermost first
  functions: List[ast.AST]  # of the calls, the innermost first, the module last

  def job_scope(self) -> Optional[Scope]:
    """Returns the innermost scope that names, or may name, a job; None without such a scope."""
    for scope in self.scopes:
      if scope.kind != DEVICE or "/job:" in scope.text or scope.text.startswith("*"):
        return scope
    return None


class Ways:
  """The ways to the places of a program."""

  def __init__(self, program):
    self._program = program
    self._callers: Dict[ast.AST, List[ast.Call]] = {}
    self._escaped: Set[ast.AST] = set()  # functions with callers that the source does not show
    self._methods: Dict[str, List[ast.AST]] = {}
    for node in program.nodes:
      if isinstance(node, jobs.FUNCTIONS) and isinstance(program.parent(node), ast.ClassDef):
        self._methods.setdefault(node.name, []).append(node)
    for node in program.nodes:
      if isinstance(getattr(node, "ctx", None), ast.Load):
        if isinstance(node, ast.Name):
          self._note(node)
        elif isinstance(node, ast.Attribute) and node.attr in self._methods:
          self._note_method(node)

  def to(self, node: ast.AST, depth: int = 6) -> List[Way]:
    """Returns the ways to a place; [] if the source does not show all of its callers."""
    scopes, function = self._scopes_round(node)
    if not isinstance(function, jobs.FUNCTIONS):
      return [Way(scopes, [function])] if isinstance(function, ast.Module) else []
    if function in self._escaped or function.decorator_list or not depth:
      return []
    callers = self._callers.get(function, [])
    if not callers and function.name == "main":
      return [Way(scopes, [function])]
    ways_here = []
    for call in callers:
      ways = self.to(call, depth - 1)
      if not ways:
        return []
      ways_here += [Way(scopes + way.scopes, [function] + way.functions) for way in ways]
    return ways_here

  def _note(self, name):
    """Notes the use of a function or a class."""
    parent = self._program.parent(name)
    for bound in self._program.bindings(name):
      if getattr(bound.statement, "name", None) != name.id:
        continue
      if isinstance(bound.statement, jobs.FUNCTIONS):
        if not self._is_run(parent):
          self._note_use(bound.statement, name)
      elif isinstance(bound.statement, ast.ClassDef):
        is_call = isinstance(parent, ast.Call) and parent.func is name
        for method in self._methods_of(bound.statement):
          if not is_call:  # for example, another class derives from this class
            self._escaped.add(method)
          elif method.name == "__init__":
            self._note_use(method, name)

  def _note_use(self, function, node):
    parent = self._program.parent(node)
    if isinstance(parent, ast.Call) and parent.func is node:
      self._callers.setdefault(function, []).append(parent)
    else:
      self._escaped.add(function)

  def _note_method(self, node):
    """Notes the use of a method of a known class, or of any class if the class is unknown."""
    if getattr(node.value, "id", "") == "self":
      owner = self._program.enclosing(node, ast.ClassDef)
    else:
      maker = self._program.call_of(node.value)
      bound = [] if maker is None else self._program.bindings(maker.func)
      owner = bound[0].statement if len(bound) == 1 else None
    known = [method for method in self._methods_of(owner) if method.name == node.attr]
    if len(known) == 1:
      self._note_use(known[0], node)
    elif self._program.name_of(node) is None:
      self._escaped.update(self._methods[node.attr])

  @staticmethod
  def _methods_of(owner):
    body = owner.body if isinstance(owner, ast.ClassDef) else []
    return [statement for statement in body if isinstance(statement, jobs.FUNCTIONS)]

  def _is_run(self, node):
    """Whether a function is an argument of `tf.app.run`."""
    call = self._program.parent(node) if isinstance(node, ast.keyword) else node
    return isinstance(call, ast.Call) and self._program.name_of(call.func) in _APP_RUN

  def _scopes_round(self, node) -> Tuple[List[Scope], ast.AST]:
    """Returns the scopes around a node, innermost first, and the function or module around it."""
    scopes, child, parent = [], node, self._program.parent(node)
    ends = jobs.FUNCTIONS + (ast.Module, ast.Lambda, ast.ClassDef)
    while parent is not None and not isinstance(parent, ends):
      if isinstance(parent, (ast.With, ast.AsyncWith)):
        items = parent.items[:parent.items.index(child)] if child in parent.items else parent.items
        scopes += filter(None, map(self._scope_of, reversed(items)))
      child, parent = parent, self._program.parent(parent)
    return scopes, parent

  def _scope_of(self, item) -> Optional[Scope]:
    node = item.context_expr
    if isinstance(node, ast.Call) and self._program.name_of(node.func) == "tf.device":
      argument = self._program.argument(node, "device_name_or_function", 0)
      return self._classify(argument if argument is not None else node)
    function = node.func if isinstance(node, ast.Call) else node
    # The scope of the program's own function, or of a strategy.
    is_unknown = "device" in texts.words_of(function) or getattr(function, "attr", "") == "scope"
    return Scope(UNKNOWN, node) if is_unknown else None

  def _classify(self, node):
    if self._program.made_by(node) == jobs.SETTER:
      return Scope(SETTER, node)
    text = texts.text_of(self._program, node)
    return Scope(UNKNOWN, node) if text is None else Scope(DEVICE, node, text)
