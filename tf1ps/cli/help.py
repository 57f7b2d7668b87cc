"""Makes the text of --help: the program's task, its flags by group, and the user's own flags.

A program with many flags shows the flags of the first level (`Option.first`); --help=all shows all.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import List, Optional

from absl import flags

from tf1ps.cli import flags as flags_lib
from tf1ps.training import Option, of_program

FLAGS = flags.FLAGS
_WIDTH = 88
_FEW = 20  # a program with at most this number of flags needs no levels


def text(program: str, summary: str, user_module: Optional[str] = None,
         shows_all: bool = True) -> str:
  """Returns the text of --help.

  Args:
    program: a name in `PROGRAMS`, such as "worker".
    summary: the program's task, in a sentence or two.
    user_module: the name of the user's module, whose flags are also listed, or None.
    shows_all: whether all flags are listed, and not only those of the first level.
  """
  lines = textwrap.wrap("tf1ps-%s: %s" % (program, summary), _WIDTH)
  ours = of_program(program)
  count = len(ours)
  if not shows_all and count > _FEW:
    ours = [option for option in ours if option.first]
  for group, members in itertools.groupby(ours, lambda option: option.group):
    lines += ["", group + ":"]
    for option in members:
      lines += _of_option(option, program)
  own = FLAGS.flags_by_module_dict().get(user_module, []) if user_module else []
  if own:
    lines += ["", "Of the program %s:" % user_module]
    for flag in sorted(own, key=lambda flag: flag.name):
      lines += _of_flag(flag)
  elif "program" in {option.name for option in ours}:
    lines += ["", "With a program, --help lists the program's own flags as well."]
  if len(ours) < count:
    lines += ["", "--help=all lists all %d flags." % count]
  return "\n".join(lines)


def _of_option(option: Option, program: str) -> List[str]:
  default = FLAGS[option.name].default
  if isinstance(default, bool):
    default = str(default).lower()
  return _entry(flags_lib.spelling_of(option), flags_lib.meaning_of(option), default)


def _of_flag(flag) -> List[str]:
  """The lines of a flag of the user's program."""
  choices = getattr(flag.parser, "enum_values", None) or []
  meaning = re.sub(r"^<[^>]*>: ", "", flag.help)  # absl's list of choices
  placeholder = {"int": "N", "float": "X"}.get(flag.flag_type(), flag.name.split("_")[-1].upper())
  if choices:
    placeholder = "|".join(choices)
  default = "" if flag.default in (None, "") else flag.default_as_str.strip("'")
  spelling = "--[no]" + flag.name if flag.boolean else "--%s=%s" % (flag.name, placeholder)
  return _entry(spelling, meaning, default)


def _entry(spelling: str, meaning: str, default) -> List[str]:
  """The lines of a flag."""
  head = "  " + spelling
  shown = "" if default in (None, "") else " [%s]" % (default,)
  wrapped = textwrap.wrap(meaning + shown, _WIDTH - 30)
  if len(head) > 28:
    return [head] + [" " * 30 + line for line in wrapped]
  return [head.ljust(30) + wrapped[0]] + [" " * 30 + line for line in wrapped[1:]]
