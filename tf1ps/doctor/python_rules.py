"""Rules of code that parses, but that Python 3 or today's NumPy refuses at run time."""

from __future__ import annotations

import ast
import re

from tf1ps import compat
from tf1ps.doctor.findings import GONE, Rule

_ITERATORS = ("filter", "map", "zip")
_VIEWS = ("items", "keys", "values")
# Functions that take a list, but not an iterator.
_OF_LISTS = re.compile(
  r"numpy\.(array|asarray|concatenate|hstack|max|mean|min|random\.\w+|stack|std|sum|vstack)$"
  r"|random\.(choice|sample|shuffle)$")
_OF_LIST_METHODS = ("append", "count", "extend", "index", "insert", "pop", "remove", "reverse",
                    "sort")
# {removed name of NumPy: today's name}. NumPy 2 has "bool" and "long" again, as different types.
NUMPY = {old: new for old, new in compat.REMOVED_FROM_NUMPY.items() if old not in ("bool", "long")}
_NUMBER = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?([a-zA-Z%])")
_FILLS = re.compile(
  r"tf\.(zeros|ones|random_\w+|random\.\w+|truncated_normal|fill)$|numpy\.(zeros|ones)$")


def _numpy_names(program):
  taken = [(node, full) for node, full in program.imports() if full.startswith("numpy.")]
  for node, name in taken + program.names():
    last = name[len("numpy."):].split(".")[0]
    if name.startswith("numpy.") and last in NUMPY and not program.is_guarded(node):
      yield node, "NumPy has no np.%s any more: write %s" % (last, NUMPY[last])


def _iterators(program):
  """Finds uses of an iterator or a view as a list."""
  for node in program.nodes:
    value = _used_as_list(program, node)
    kind = value is not None and _kind(program, value)
    is_len = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len"
    if kind and not (is_len and kind in _VIEWS + ("range",)) and not (
        kind == "range" and isinstance(node, ast.Subscript)):
      yield node, "%s makes no list in Python 3" % kind


def _used_as_list(program, node):
  """Returns the expression that a node uses as a list; None for other nodes."""
  if isinstance(node, ast.Subscript) and _is_position(program, node):
    return node.value
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
    return node.left if _kind(program, node.left) else node.right
  if not isinstance(node, ast.Call):
    return None
  if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_LIST_METHODS:
    return node.func.value
  if node.args and (_OF_LISTS.match(program.name_of(node.func) or "")
                    or getattr(node.func, "id", "") == "len"):
    return node.args[0]
  return None


def _is_position(program, node):
  """Whether a subscript is a number or a slice, and not a key."""
  index = getattr(node.slice, "value", node.slice)  # Python 3.7 wraps the index
  index = index if isinstance(index, ast.AST) else node.slice
  return isinstance(node.ctx, ast.Load) and (
    isinstance(index, ast.Slice) or isinstance(program.value_of(index), int))


def _kind(program, node):
  """Returns the function that made an iterator or a view, such as "map"; "" for other values."""
  call = program.call_of(node)
  if call is None:
    return ""
  if isinstance(call.func, ast.Attribute):
    is_view = call.func.attr in _VIEWS and not call.args and not call.keywords
    return call.func.attr if is_view and program.name_of(call.func) is None else ""
  name = getattr(call.func, "id", "")
  is_own = name not in _ITERATORS + ("range",) or program.bindings(call.func)
  return "" if is_own or not call.args else name


def _arrays(program):
  """Finds fetched variables of shape [1] that a text formats as numbers."""
  for node in program.nodes:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
      continue
    text = program.value_of(node.left)
    values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
    kinds = [kind for kind in _NUMBER.findall(text) if kind != "%"] if isinstance(text, str) else []
    for kind, value in zip(kinds, values):
      if kind in "deEfgGi" and _is_one_element(program, _fetched(program, value)):
        yield value


def _fetched(program, node):
  """Returns the fetch of an expression's value: `v` of `session.run(v)`, or of `run([v, w])`."""
  if isinstance(node, ast.Call):
    return node.args[0] if _is_run(node) else None
  for bound in program.bindings(node):
    statement = bound.statement
    if not isinstance(statement, ast.Assign) or not _is_run(statement.value):
      continue
    fetches, target = statement.value.args[0], statement.targets[0]
    if not isinstance(target, ast.Tuple):
      return fetches
    names = [getattr(element, "id", None) for element in target.elts]
    if isinstance(fetches, (ast.List, ast.Tuple)) and len(fetches.elts) == len(names):
      return fetches.elts[names.index(node.id)]
  return None


def _is_run(node):
  return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
          and node.func.attr == "run" and len(node.args) > 0)


def _is_one_element(program, node):
  """Whether an expression is a variable of the shape [1]."""
  call = program.call_of(node)
  name = call is not None and program.name_of(call.func)
  if name == "tf.get_variable":
    return program.value_of(program.argument(call, "shape", 1)) in ([1], (1,))
  if name != "tf.Variable":
    return False
  first = program.argument(call, "initial_value", 0)
  value = program.value_of(first)
  if isinstance(value, list):
    return len(value) == 1 and not isinstance(value[0], list)
  maker = program.call_of(first)
  return (maker is not None and _FILLS.match(program.name_of(maker.func) or "") is not None
          and program.value_of(program.argument(maker, "shape", 0)) in ([1], (1,), 1))


_PYTHON2, _NUMPY = "docs/legacy.md#python-2", "docs/legacy.md#numpy"

RULES = (
  Rule("numpy-name-is-gone", GONE, "NumPy has removed this name",
       "Write today's name, or run the program by tf1ps-run, which puts it back.", _NUMPY, False,
       _numpy_names),
  Rule("array-as-number", GONE,
       "This is an array of one element, of which NumPy 2.4 makes no number: TypeError",
       "Write w[0] for w, or install 'tf1ps[legacy]', which has an older NumPy.", _NUMPY, False,
       _arrays),
  Rule("iterator-as-list", GONE,
       "This makes no list in Python 3: it has no length or no elements by position",
       "Write list(...) round it, or run the program by tf1ps-run --2to3.", _PYTHON2, False,
       _iterators),
)
