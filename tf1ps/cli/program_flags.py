"""A program's own defaults of tf1ps's flags: the dict FLAGS at the top level of its file.

    FLAGS = {"epochs": 30, "learning_rate": 0.01}

tf1ps reads the dict from the source, before the program is imported: tf1ps-local imports no
program, and some flags affect the import. So the values of the dict must be plain. A flag of the
command line overrides the dict. The dict may also have the program's own flags, which the import
defines.
"""

from __future__ import annotations

import ast
from typing import Any, Callable, Dict, List, NamedTuple

from tf1ps.cli import errors
from tf1ps.program import file_of
from tf1ps.training import TABLE, Option

_NAME = "FLAGS"
_PROGRAMS = {"local", "worker", "ps", "evaluator", "predict"}
_KNOWN = {option.name: option for option in TABLE if _PROGRAMS.intersection(option.programs)}
_OF_A_TASK = ("program", "job_name", "task_index")
_ENDS = ("steps", "epochs", "examples")  # one of them on the command line replaces all of them
_KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


class ProgramFlags(NamedTuple):
  """The dict of a program."""

  file: str  # the program's file
  values: Dict[str, Any]  # the values of tf1ps's flags, as their options parse them
  texts: Dict[str, str]  # the same values, as texts on a command line
  others: Dict[str, Any]  # the values of the program's own flags, or of unknown flags


NONE = ProgramFlags("", {}, {}, {})


def read(program: str) -> ProgramFlags:
  """Reads the dict of a program, which is a module's name or the path of a .py file.

  The result is empty for a file that cannot be read or parsed: the import will raise the error.

  Raises:
    UsageError: a value of the dict is not plain, or its flag refuses the value.
  """
  file = file_of(program)
  try:
    with open(file or "", "rb") as source:
      tree = ast.parse(source.read())
  except (OSError, SyntaxError, ValueError):
    return NONE
  named = {}
  for node in tree.body:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
        isinstance(target, ast.Name) and target.id == _NAME for target in targets):
      named = _literal(node, file)
  values, texts, others = {}, {}, {}
  for name, value in named.items():
    if name in _OF_A_TASK:
      raise errors.UsageError("%s: FLAGS[%r] differs between tasks: give --%s on the command line"
                              % (file, name, name))
    if name not in _KNOWN:
      others[name] = value
    elif value is not None:  # None means the default of tf1ps
      values[name], texts[name] = _parse(_KNOWN[name], value, file)
  return ProgramFlags(file, values, texts, others)


def without_given(defaults: ProgramFlags, is_given: Callable[[str], bool]) -> ProgramFlags:
  """Returns the defaults that a command line does not replace."""
  ends = any(is_given(name) for name in _ENDS)
  kept = {name for name in defaults.values if not is_given(name) and not (ends and name in _ENDS)}
  return defaults._replace(values={name: defaults.values[name] for name in kept},
                           texts={name: defaults.texts[name] for name in kept})


def as_arguments(defaults: ProgramFlags) -> List[str]:
  """Returns the defaults of tf1ps's flags as arguments of a command line."""
  return ["--%s=%s" % entry for entry in sorted(defaults.texts.items())]


def set_defaults(defaults: ProgramFlags, flags) -> None:
  """Sets the defaults of the tf1ps flags that absl's `flags` contain."""
  for name, value in defaults.values.items():
    if name in flags:
      flags.set_default(name, value)


def set_other_defaults(defaults: ProgramFlags, flags) -> None:
  """Sets the defaults of an imported program's own flags.

  Raises UsageError if the program lacks a flag, or the flag refuses its value.
  """
  for name, value in defaults.others.items():
    if name not in flags:
      raise errors.UsageError("%s: FLAGS: %s" % (
        defaults.file, errors.no_such_flag(name, [*_KNOWN, *flags], "tf1ps-local")))
    try:
      flags.set_default(name, value)
    except Exception as error:  # an error of absl, or of the program's own parser
      raise errors.UsageError("%s: FLAGS[%r]: %s" % (defaults.file, name, error)) from error


def _literal(node, file: str) -> Dict[str, Any]:
  """Returns the assigned dict; {} for anything else, such as absl's FLAGS."""
  value, values = node.value, {}
  try:
    if isinstance(value, ast.Dict):
      values = ast.literal_eval(value)
    elif isinstance(value, ast.Call) and getattr(value.func, "id", "") == "dict":
      values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in value.keywords}
      values = None if value.args else values
  except ValueError:
    values = None
  if values is None or not all(isinstance(name, str) for name in values):
    raise errors.UsageError("%s:%d: FLAGS must be a dict of plain values by the names of flags, "
                            'such as {"epochs": 30}' % (file, node.lineno))
  return values


def _parse(option: Option, value, file: str):
  """Returns a value as its option parses it, and its text; raises UsageError."""
  kind = option.parse if option.parse in _KINDS else str
  text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
  text = text.lower() if isinstance(value, bool) else text
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
  return parsed, text
