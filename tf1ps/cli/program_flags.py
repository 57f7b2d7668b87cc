"""A program's own defaults of our flags: the dict FLAGS at the top level of its file.

    FLAGS = {"epochs": 30, "learning_rate": 0.01}

It is read from the source, before the program is imported: tf1ps-local imports no program, and some
flags act on the import. So its values are plain ones. A flag of the command line comes before it.
The dict may name the program's own flags as well, which are known once it is imported.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from tf1ps.cli import errors
from tf1ps.training import TABLE, Option

_NAME = "FLAGS"
_PROGRAMS = {"local", "worker", "ps", "evaluator", "predict"}
_KNOWN = {option.name: option for option in TABLE if _PROGRAMS.intersection(option.programs)}
_OF_A_TASK = ("program", "job_name", "task_index")
_ENDS = ("steps", "epochs", "examples")  # one on the command line takes the place of all
_KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


class ProgramFlags(NamedTuple):
  """The dict of a program."""

  file: str  # the program's file
  values: Dict[str, Any]  # of our flags, as their options parse them
  texts: Dict[str, str]  # the same as on a command line
  others: Dict[str, Any]  # of the program's own flags, or of none


NONE = ProgramFlags("", {}, {}, {})


def read(program: str) -> ProgramFlags:
  """Reads the dict of a program, a module's name or the path of a .py file.

  A file that cannot be read or parsed has none: its import says why.

  Raises:
    UsageError: the dict has other than plain values, or a value that its flag refuses.
  """
  file = _file_of(program)
  try:
    with open(file or "", "rb") as source:
      tree = ast.parse(source.read())
  except (OSError, SyntaxError, ValueError):
    return NONE
  found = {}
  for node in tree.body:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
        isinstance(target, ast.Name) and target.id == _NAME for target in targets):
      found = _literal(node, file)
  values, texts, others = {}, {}, {}
  for name, value in found.items():
    if name in _OF_A_TASK:
      raise errors.UsageError("%s: FLAGS[%r] differs between tasks: give --%s on the command line"
                              % (file, name, name))
    if name not in _KNOWN:
      others[name] = value
    elif value is not None:  # None stands for our default
      values[name], texts[name] = _parse(_KNOWN[name], value, file)
  return ProgramFlags(file, values, texts, others)


def without_given(found: ProgramFlags, is_given: Callable[[str], bool]) -> ProgramFlags:
  """Returns the defaults that hold beside the flags of a command line."""
  ends = any(is_given(name) for name in _ENDS)
  kept = {name for name in found.values if not is_given(name) and not (ends and name in _ENDS)}
  return found._replace(values={name: found.values[name] for name in kept},
                        texts={name: found.texts[name] for name in kept})


def as_arguments(found: ProgramFlags) -> List[str]:
  """Returns the defaults of our flags as arguments of a command line."""
  return ["--%s=%s" % each for each in sorted(found.texts.items())]


def set_defaults(found: ProgramFlags, flags) -> None:
  """Sets the defaults of our flags that `flags`, absl's, has."""
  for name, value in found.values.items():
    if name in flags:
      flags.set_default(name, value)


def set_other_defaults(found: ProgramFlags, flags) -> None:
  """Sets the defaults of the program's own flags; it was imported.

  Raises UsageError if there is no such flag, or the flag refuses its value.
  """
  for name, value in found.others.items():
    if name not in flags:
      raise errors.UsageError("%s: FLAGS: %s" % (
        found.file, errors.no_such_flag(name, [*_KNOWN, *flags], "tf1ps-local")))
    try:
      flags.set_default(name, value)
    except Exception as error:  # absl's, or one of the program's own parser
      raise errors.UsageError("%s: FLAGS[%r]: %s" % (found.file, name, error)) from error


def _file_of(program: str) -> Optional[str]:
  if program.endswith(".py") or os.sep in program:
    return program
  try:
    spec = importlib.util.find_spec(program)
  except (ImportError, ValueError, AttributeError):
    return None
  return None if spec is None else spec.origin


def _literal(node, file: str) -> Dict[str, Any]:
  """Returns the assigned dict; {} for anything else, such as absl's FLAGS."""
  value, found = node.value, {}
  try:
    if isinstance(value, ast.Dict):
      found = ast.literal_eval(value)
    elif isinstance(value, ast.Call) and getattr(value.func, "id", "") == "dict":
      found = {one.arg: ast.literal_eval(one.value) for one in value.keywords}
      found = None if value.args else found
  except ValueError:
    found = None
  if found is None or not all(isinstance(name, str) for name in found):
    raise errors.UsageError("%s:%d: FLAGS must be a dict of plain values by the names of flags, "
                            'such as {"epochs": 30}' % (file, node.lineno))
  return found


def _parse(option: Option, value, file: str):
  """Returns a value as its option parses it, and its text; raises UsageError."""
  kind = option.parse if option.parse in _KINDS else str
  text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
  wanted = (int, float) if kind is float else kind
  problem, parsed = "", value
  if kind is str and option.parse is not str:
    try:
      parsed = option.parse(text)
    except ValueError as error:
      problem = str(error)
  elif not isinstance(value, wanted) or isinstance(value, bool) != (kind is bool):
    problem = "must be " + _KINDS[kind]
  problem = problem or option.problem_of(parsed)
  if problem:
    raise errors.UsageError("%s: FLAGS[%r] %s, got %r" % (file, option.name, problem, value))
  return parsed, text.lower() if kind is bool else text
