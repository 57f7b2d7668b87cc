"""Looks at a command line before it is parsed. Imports nothing heavy."""

from __future__ import annotations

from typing import List, Optional, Sequence

from tf1ps.cli import errors
from tf1ps.training import of_program

HELP = ("--help", "-h", "-help", "--helpshort")
HELP_ALL = ("--help=all", "--helpfull")


def name_program(argv: Sequence[str], program: str) -> List[str]:
  """Makes the argument without a dash, the program's path or module, the value of --program.

  A flag that is not a flag of tf1ps takes the next argument as its value, unless that argument
  begins with a dash: only the user's program knows which of its flags have values. So a user puts
  the program before such flags, or writes them with "=".

  Args:
    argv: the arguments.
    program: a name in `PROGRAMS` whose program has --program, such as "worker".

  Returns:
    The arguments, with --program first, because the first parse of a command line ends at a flag
    that is not a flag of tf1ps.

  Raises:
    UsageError: two arguments name the program.
  """
  is_switch = {option.name: option.is_switch for option in of_program(program)}
  flags, others, position = [], [], 0
  while position < len(argv) and argv[position] != "--":
    text, width = argv[position], 1
    name, has_value, value = text.lstrip("-").partition("=")
    if name.startswith("no") and is_switch.get(name[len("no"):]):
      name = name[len("no"):]
    if not text.startswith("-"):
      others.append(position)
    elif not has_value and text not in HELP and not is_switch.get(name):
      value = "".join(argv[position + 1:position + 2])
      width = 1 if name not in is_switch and value.startswith("-") else 2
    if name == "program" and text.startswith("-"):
      flags.append("--program=" + value)
    position += width
  if others and len(others + flags) > 1:
    raise errors.UsageError("%r and %s both name a program: leave one out" % (
      argv[others[0]], flags[0] if flags else repr(argv[others[1]])))
  return [*("--program=" + argv[position] for position in others),
          *(text for position, text in enumerate(argv) if position not in others)]


def find_value(argv: Sequence[str], name: str) -> Optional[str]:
  """Returns the text of a flag on a command line that is not parsed yet; None without the flag.

  If a command line has the flag several times, the last one counts, as for absl.
  """
  last = None
  for position, text in enumerate(argv):
    given, has_value, value = text.lstrip("-").partition("=")
    if text.startswith("-") and given == name:
      last = value if has_value else "".join(argv[position + 1:position + 2])
  return last


def without_others(argv, program) -> List[str]:
  """Returns the arguments without the flags that only the programs of other tasks have."""
  own = [option.name for option in of_program(program)]
  others = {option.name: option.is_switch
            for option in of_program("task")
            if program != "local" and option.name not in own}
  kept, is_value = [], False
  for text in argv:
    if is_value:  # the value of a flag that was left out
      is_value = False
      continue
    name, has_value, _ = text.lstrip("-").partition("=")
    if name.startswith("no") and others.get(name[len("no"):]):
      name = name[len("no"):]
    if text.startswith("-") and name in others:
      is_value = not has_value and not others[name]
    else:
      kept.append(text)
  return kept
