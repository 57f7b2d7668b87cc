"""The flags of each program, made of the descriptions in tf1ps/training/options.py.

They are absl flags, so a user's program can define its own flags beside them. `--verbosity` takes
the place of absl's flag of that name and accepts its numbers as well.

`python -m tf1ps.cli.flags > docs/flags.md` writes the page of all flags.
"""

from __future__ import annotations

from typing import Callable

from absl import flags
from absl import logging as unused_absl_logging  # noqa: F401  defines the flag that ours replaces

from tf1ps.training import PROGRAMS, TABLE, Option, of_program


class _Parser(flags.ArgumentParser):
  """Parses the text of a flag as its description says."""

  def __init__(self, parse: Callable[[str], object], placeholder: str):
    self._parse = parse
    self.syntactic_help = "<%s>" % placeholder

  def parse(self, argument):
    return self._parse(argument) if isinstance(argument, str) else argument

  def flag_type(self):
    return "string"


def define(program: str) -> None:
  """Defines the flags of a program.

  Args:
    program: one of `options.PROGRAMS`, such as "worker".
  """
  for option in of_program(program):
    _define(option, option.default_of(program))


def _define(option: Option, default) -> None:
  # absl's log_dir and verbosity give way to ours.
  overrides = {"allow_override": True} if option.name in ("log_dir", "verbosity") else {}
  if option.values:
    flags.DEFINE_enum(option.name, default, list(option.values), option.help)
  elif option.parse is bool:
    flags.DEFINE_boolean(option.name, default, option.help)
  elif option.parse is int:
    flags.DEFINE_integer(option.name, default, option.help)
  elif option.parse is float:
    flags.DEFINE_float(option.name, default, option.help)
  elif option.parse is str:
    flags.DEFINE_string(option.name, default, option.help, **overrides)
  else:
    flags.DEFINE(_Parser(option.parse, option.placeholder), option.name, default, option.help,
                 serializer=_Serializer(), **overrides)
  if not option.values:
    flags.register_validator(option.name, lambda value: _check(option, value))


def _check(option: Option, value) -> bool:
  problem = option.problem_of(value)
  if problem:
    raise flags.ValidationError(problem)
  return True


class _Serializer(flags.ArgumentSerializer):

  def serialize(self, value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def placeholder_of(option: Option) -> str:
  """What --help shows for the value of a flag: "DIR", for example."""
  choices = "|".join(option.values)
  if choices and len(choices) < 44:
    return choices
  if option.placeholder:
    return option.placeholder
  return {int: "N", float: "X"}.get(option.parse, option.name.split("_")[-1].upper())


def as_page() -> str:
  """The page of all flags, docs/flags.md."""
  lines = [
    "# Flags", "",
    "Each program is listed with the flags that it has. `--help` shows the same for one program. "
    "This page is made by `python -m tf1ps.cli.flags > docs/flags.md`."]
  group = None
  for option in TABLE:
    if not option.programs:
      continue
    if option.group != group:
      group = option.group
      lines += ["", "## " + group, "", "| flag | default | what it does | programs |",
                "|---|---|---|---|"]
    lines.append("| %s | %s | %s | %s |" % (
      _flag_cell(option), _default_cell(option), _help_cell(option), _programs_cell(option)))
  lines += ["", "## What cannot go together", ""]
  lines += ["- `--%s` %s." % (option.name, rule.text) for option in TABLE for rule in option.rules]
  return "\n".join(lines) + "\n"


def _flag_cell(option) -> str:
  if option.parse is bool:
    return "`--[no]%s`" % option.name
  return "`--%s=%s`" % (option.name, placeholder_of(option).replace("|", "\\|"))


def _default_cell(option) -> str:
  cells = [_value(option.default)] + [
    "%s in tf1ps-%s" % (_value(value), program) for program, value in option.defaults.items()]
  return ", ".join(cells) if any(cells) else ""


def _value(value) -> str:
  if isinstance(value, bool):
    return "yes" if value else "no"
  return "" if value is None else "`%s`" % value


def _help_cell(option) -> str:
  text = option.help
  if option.values and "|".join(option.values) != placeholder_of(option):
    text += " One of %s." % ", ".join(option.values)
  limits = " and ".join(
    "%s %g" % (word, limit) for word, limit in (
      ("above", option.above), ("at least", option.at_least), ("at most", option.at_most))
    if limit is not None)
  return text + (" The value must be %s." % limits if limits and limits != "above 0" else "")


def _programs_cell(option) -> str:
  if option.programs == PROGRAMS:
    return "all"
  return ", ".join(option.programs)


if __name__ == "__main__":
  print(as_page(), end="")
