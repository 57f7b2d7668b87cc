"""Finds a program's file and its mistakes, before TensorFlow is imported.

`check_source` reads the file and imports nothing, so it reports mistakes immediately: a missing
file, a syntax error, or a function that is missing or takes other parameters. If a program may
define its functions in another way than by `def`, the import checks the functions.
"""

from __future__ import annotations

import ast
import copy
import difflib
import importlib.util
import inspect
import os
from typing import Any, Callable, Dict, List, Optional, Sequence

from tf1ps.compat import Error, near_path

# The functions of a program, and their parameters by position.
FUNCTIONS = {"input_fn": ("mode", "shard"), "model_fn": ("features", "labels", "mode")}

# With these functions a module may bind names that no definition shows.
_BINDERS = frozenset(["exec", "eval", "globals", "locals", "vars", "setattr"])


class ProgramError(Error, ValueError):
  """The program cannot be found, imported or used."""


def is_path(program: str) -> bool:
  """Returns whether a program is given as the path of a file, not as a module's name."""
  return program.endswith(".py") or os.sep in program


def file_of(program: str) -> Optional[str]:
  """Returns the path of a program's file; None for a module that cannot be found."""
  if is_path(program):
    return program
  try:
    spec = importlib.util.find_spec(program)
  except (ImportError, ValueError, AttributeError):
    return None
  return None if spec is None else spec.origin


def check_file(path: str) -> None:
  """Raises ProgramError if a file does not exist; the text names files with similar names."""
  if not os.path.isfile(path):
    raise ProgramError(f"the program {path} does not exist{near_path(path, '.py')}")


def check_source(program: str) -> None:
  """Checks the text of a program's file.

  Args:
    program: a module's name, or the path of a .py file.

  Raises:
    ProgramError: the file does not exist, has a syntax error, or lacks a function; or a function
      takes other parameters.
  """
  path = file_of(program)
  if is_path(program):
    path = os.path.abspath(program)
    check_file(path)
  try:
    with open(path or "", "rb") as file:
      tree = ast.parse(file.read(), path)
  except OSError:
    return  # a module without a file: its import says why
  except (SyntaxError, ValueError) as error:
    shown = path if is_path(program) else program
    raise ProgramError(_say_syntax_error(shown, error)) from error
  bound = _bound_names(tree)
  for function in FUNCTIONS if bound is not None else ():
    nodes = bound.get(function)
    if nodes is None:
      others = [name for name, bindings in bound.items()
                if isinstance(bindings[0], ast.FunctionDef)]
      raise _missing(program, function, others)
    if len(nodes) == 1 and isinstance(nodes[0], ast.FunctionDef) and not nodes[0].decorator_list:
      check_parameters(program, _without_body(nodes[0]), function)


def check_function(name: str, namespace: Dict[str, Any], function: str) -> Callable:
  """Returns a function of a program; raises ProgramError if it is missing or its parameters differ.

  Args:
    name: the program's name.
    namespace: the module's names and values.
    function: a name in FUNCTIONS.
  """
  value = namespace.get(function)
  if not callable(value):
    others = [other for other, bound in namespace.items() if inspect.isfunction(bound)]
    raise _missing(name, function, others)
  check_parameters(name, value, function)
  return value


def check_parameters(name: str, callee: Callable, function: str) -> None:
  """Raises ProgramError unless `callee` takes the parameters of this function of FUNCTIONS."""
  parameters = FUNCTIONS[function]
  signature = inspect.signature(callee)
  try:
    signature.bind(*parameters)
  except TypeError as error:
    raise ProgramError(f"{name}: {function}{signature} must take ({', '.join(parameters)}), and "
                       f"every other parameter must have a default: {error}") from None
  # tf1ps passes arguments by position: names may differ, but a known name needs its own position.
  for place, parameter in enumerate(list(signature.parameters)[:len(parameters)]):
    if parameter in parameters and parameters.index(parameter) != place:
      raise ProgramError(f"{name}: {function}{signature} takes its parameters in another order "
                         f"than ({', '.join(parameters)})")


def nearest(name: str, others: Sequence[str]) -> str:
  """Returns "; did you mean ...?" with the names in `others` that are similar to `name`, or ""."""
  # Only the last parts are compared, because all names of a folder or package begin alike.
  separator = os.sep if os.sep in name else "."
  lasts = {other.rpartition(separator)[2]: other for other in sorted(others)}
  near = difflib.get_close_matches(name.rpartition(separator)[2], list(lasts), 3, 0.6)
  close = [lasts[last] for last in near]
  return f"; did you mean {' or '.join(close)}?" if close else ""


def _missing(name, function, others) -> ProgramError:
  return ProgramError(f"{name} has no function {function}({', '.join(FUNCTIONS[function])})"
                      f"{nearest(function, others)}")


def _say_syntax_error(shown, error) -> str:
  place, text = "", ""
  if isinstance(error, SyntaxError) and error.filename:
    place = f" ({error.filename}:{error.lineno})"
    text = f": {error.text.strip()}" if error.text else ""
  return f"{shown} cannot be imported{place}: {type(error).__name__}: {error}{text}"


def _bound_names(tree: ast.Module) -> Optional[Dict[str, List[ast.AST]]]:
  """Returns {name: the nodes that bind it in a module}; None if other code may also bind names."""
  if any(isinstance(node, ast.Global) or getattr(node, "id", None) in _BINDERS
         or getattr(node, "attr", None) == "modules" or getattr(node, "name", None) == "*"
         or getattr(node, "name", None) == "__getattr__" for node in ast.walk(tree)):
    return None
  bound: Dict[str, List[ast.AST]] = {}
  waiting: List[ast.AST] = list(tree.body)
  while waiting:
    node = waiting.pop()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      bound.setdefault(node.name, []).append(node)
    elif isinstance(node, ast.alias):
      bound.setdefault(node.asname or node.name.partition(".")[0], []).append(node)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      bound.setdefault(node.id, []).append(node)
    else:
      waiting.extend(ast.iter_child_nodes(node))
  return bound


def _without_body(node: ast.FunctionDef) -> Callable:
  """Returns a function that has the parameters of a definition and does nothing."""
  copied = copy.deepcopy(node)
  copied.body, copied.returns = [ast.copy_location(ast.Pass(), node)], None
  for argument in ast.walk(copied.args):
    if isinstance(argument, ast.arg):
      argument.annotation = None
  for defaults in (copied.args.defaults, copied.args.kw_defaults):
    defaults[:] = [default if default is None or _is_literal(default)
                   else ast.copy_location(ast.Constant(value=..., kind=None), default)
                   for default in defaults]
  namespace: Dict[str, Any] = {}
  module = ast.parse("")
  module.body = [copied]
  exec(compile(module, "<parameters>", "exec"), namespace)
  return namespace[node.name]


def _is_literal(node) -> bool:
  try:
    ast.literal_eval(node)
  except ValueError:
    return False
  return True
