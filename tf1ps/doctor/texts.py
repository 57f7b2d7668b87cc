"""The texts and the environment of a program, as far as its source shows them."""

from __future__ import annotations

import ast
import re
import weakref
from typing import Iterator, NamedTuple, Optional

_words = weakref.WeakKeyDictionary()  # {program: its names, attributes and keywords}


def text_of(program, node: Optional[ast.AST], depth: int = 5) -> Optional[str]:
  """Returns the text of an expression, with `*` for its unknown parts; None if all is unknown.

  `"/job:worker/task:%d" % index` is `/job:worker/task:*`.
  """
  if node is None or not depth:
    return None
  value = program.value_of(node)
  if isinstance(value, str):
    return value
  if isinstance(node, ast.JoinedStr):
    parts = [None if isinstance(part, ast.FormattedValue) else text_of(program, part)
             for part in node.values]
    return "".join("*" if part is None else part for part in parts)
  if isinstance(node, ast.BinOp):
    return _of_operator(program, node, depth)
  if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
      and node.func.attr == "format"):
    form = text_of(program, node.func.value, depth - 1)
    return form and re.sub(r"{[^}]*}", "*", form)
  return text_of(program, program.single_value(node), depth - 1)


def _of_operator(program, node, depth):
  left = text_of(program, node.left, depth - 1)
  if isinstance(node.op, ast.Mod):
    return left and re.sub(r"%[^a-zA-Z%]*[a-zA-Z]", "*", left)
  right = text_of(program, node.right, depth - 1)
  if not isinstance(node.op, ast.Add) or (left is None and right is None):
    return None
  return ("*" if left is None else left) + ("*" if right is None else right)


class Setting(NamedTuple):
  """A variable of the environment that a program sets."""

  name: str
  value: object  # UNKNOWN if it is known only when the program runs
  node: ast.AST


def environment(program) -> Iterator[Setting]:
  """Yields the variables of the environment that a program sets."""
  for node in program.nodes:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
      target = node.targets[0]
      key = getattr(target.slice, "value", target.slice)  # Python 3.7 wraps the key
      key = key if isinstance(key, ast.AST) else target.slice
      if program.name_of(target.value) == "os.environ":
        yield Setting(program.value_of(key), program.value_of(node.value), node)
  for call in program.calls("os.environ.setdefault", "os.putenv"):
    if len(call.args) == 2:
      yield Setting(program.value_of(call.args[0]), program.value_of(call.args[1]), call)


def words_of(node: ast.AST) -> str:
  """Returns all names in an expression, as a text in lower case."""
  return " ".join(
    getattr(inner, "id", "") + " " + getattr(inner, "attr", "") for inner in ast.walk(node)).lower()


def mentions(program, *words: str) -> bool:
  """Whether any of these words is a name, an attribute or a keyword in a program."""
  if program not in _words:
    _words[program] = {getattr(node, field, None) for node in program.nodes
                       for field in ("id", "attr", "arg")}
  return not _words[program].isdisjoint(words)
