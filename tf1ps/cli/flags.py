"""Makes the flags of each program from the table in tf1ps/training/options.py.

The flags are absl flags, so the user's program can define its own flags. `--verbosity` replaces
absl's flag of that name, and also accepts the numbers of absl's flag.

`python -m tf1ps.cli.flags > docs/flags.md` writes the page of all flags.
"""

from __future__ import annotations

from typing import Callable, Dict, List

from absl import flags
from absl import logging as unused_absl_logging  # noqa: F401  defines --verbosity

from tf1ps.training import PROGRAMS, TABLE, Option, of_program

_OF_A_JOB = "local, worker, ps, evaluator"


class _Parser(flags.ArgumentParser):
  """Parses a flag by the function of its option."""

  def __init__(self, parse: Callable[[str], object], placeholder: str):
    self._parse = parse
    self.syntactic_help = "<%s>" % placeholder

  def parse(self, argument):
    return self._parse(argument) if isinstance(argument, str) else argument

  def flag_type(self):
    return "string"


class _InWords:
  """Says what a text must be if the parser, the next base class, cannot read the text."""

  must_be = ""

  def parse(self, argument):
    try:
      return super().parse(argument)  # type: ignore[misc]
    except ValueError:
      raise ValueError("must be " + self.must_be) from None


class _Integer(_InWords, flags.IntegerParser):
  must_be = "a whole number"


class _Float(_InWords, flags.FloatParser):
  must_be = "a number"


class _Boolean(_InWords, flags.BooleanParser):
  must_be = "true or false"


_NUMBERS = {int: _Integer, float: _Float}


def define(program: str, flag_values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines the flags of a program.

  Args:
    program: a name in `PROGRAMS`, such as "worker".
    flag_values: where the flags are defined.
  """
  for option in of_program(program):
    _define(option, option.default_of(program), flag_values)


def _define(option: Option, default, flag_values) -> None:
  more = {"flag_values": flag_values}
  if option.name in ("log_dir", "verbosity"):
    more["allow_override"] = True  # absl defines these flags, too
  if option.values:
    flags.DEFINE_enum(option.name, default, list(option.values), option.help, **more)
  elif option.is_switch:
    parser = _Boolean() if option.parse is bool else _Parser(option.parse, option.placeholder)
    flags.DEFINE_flag(_Switch(parser, None, option.name, default, option.help, boolean=True),
                      flag_values)
  elif option.parse in _NUMBERS:
    flags.DEFINE(_NUMBERS[option.parse](), option.name, default, option.help,
                 serializer=flags.ArgumentSerializer(), **more)
  elif option.parse is str:
    flags.DEFINE_string(option.name, default, option.help, **more)
  else:
    flags.DEFINE(_Parser(option.parse, option.placeholder), option.name, default, option.help,
                 serializer=_Serializer(), **more)
  if not option.values:
    flags.register_validator(
      option.name, lambda value: _check(option, value), flag_values=flag_values)


def _check(option: Option, value) -> bool:
  problem = option.problem_of(value)
  if problem:
    raise flags.ValidationError(problem)
  return True


class _Switch(flags.Flag):
  """A flag that may stand without a value."""

  def serialize(self):
    if isinstance(self.value, bool):
      return super().serialize()
    return "--%s=%s" % (self.name, self.value)


class _Serializer(flags.ArgumentSerializer):

  def serialize(self, value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def placeholder_of(option: Option) -> str:
  """Returns the text of --help for the value of a flag, such as "DIR"."""
  choices = "|".join(option.values)
  if choices and len(choices) < 44:
    return choices
  if option.placeholder:
    return option.placeholder
  return {int: "N", float: "X"}.get(option.parse, option.name.split("_")[-1].upper())


def spelling_of(option: Option) -> str:
  """Returns a flag as --help shows it, such as "--[no]evaluator" or "--log_dir=DIR"."""
  if option.is_switch:
    return "--[no]%s%s" % (option.name, option.placeholder)
  return "--%s=%s" % (option.name, placeholder_of(option))


def meaning_of(option: Option) -> str:
  """Returns the meaning of a flag, with its values unless the placeholder lists them."""
  if option.values and "|".join(option.values) != placeholder_of(option):
    return option.help + " One of %s." % ", ".join(option.values)
  return option.help


def as_page() -> str:
  """The page of all flags, docs/flags.md."""
  lines = [
    "# Flags", "",
    "The last column lists the programs that have a flag. tf1ps-task has the flags of "
    "tf1ps-worker, tf1ps-ps and tf1ps-evaluator. `--help` shows those flags of one program that a "
    "first job needs, and `--help=all` all. "
    "\"job\": tf1ps-local, -worker, -ps and -evaluator. "
    "`python -m tf1ps.cli.flags > docs/flags.md` makes this page."]
  group = None
  for option in TABLE:
    if option.group != group:
      group = option.group
      lines += ["", "## " + group, "", "|flag|default|what it does|programs|", "|-|-|-|-|"]
    flag = spelling_of(option).replace("|", "\\|")
    defaults = [_value(option.default), *(
      "%s in tf1ps-%s" % (_value(value), program) for program, value in option.defaults.items())]
    limit = "" if option.at_least is None else " The value must be at least %g." % option.at_least
    programs = "all" if option.programs == PROGRAMS else ", ".join(option.programs)
    lines.append("|`%s`|%s|%s%s|%s|" % (
      flag, ", ".join(filter(None, defaults)), meaning_of(option), limit,
      programs.replace(_OF_A_JOB, "job")))
  lines += ["", "## Flags that do not go together", ""]
  texts: Dict[str, List[str]] = {}
  for option in TABLE:
    for rule in option.rules:
      texts.setdefault(rule.text, []).append("`--%s`" % option.name)
  lines += ["- %s: %s." % (", ".join(names), text) for text, names in texts.items()]
  return "\n".join(lines) + "\n"


def _value(value) -> str:
  if isinstance(value, bool):
    return "yes" if value else "no"
  return "" if value is None else "`%s`" % value


if __name__ == "__main__":
  print(as_page(), end="")
