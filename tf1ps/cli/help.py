"""The text of --help: what the program does, its flags by group, the user's program's flags."""

from __future__ import annotations

import re
import textwrap
from typing import Optional

from absl import flags

from tf1ps.cli import flags as flags_lib

FLAGS = flags.FLAGS
_WIDTH = 88


def text(name: str, summary: str, program_module: Optional[str] = None) -> str:
  """Returns the text of --help.

  Args:
    name: the program's name.
    summary: what it does, in a sentence or two.
    program_module: the module of the user's program, whose flags are listed as well, or None.
  """
  lines = textwrap.wrap("%s: %s" % (name, summary), _WIDTH)
  for group, names in flags_lib.groups().items():
    lines += ["", group + ":"]
    for flag in names:
      lines += _flag(FLAGS[flag])
  own = FLAGS.flags_by_module_dict().get(program_module, []) if program_module else []
  if own:
    lines += ["", "Of the program %s:" % program_module]
    for flag in sorted(own, key=lambda flag: flag.name):
      lines += _flag(flag)
  elif "program" in FLAGS:
    lines += ["", "With --program=... --help lists the program's own flags as well."]
  return "\n".join(lines)


def _flag(flag) -> list:
  value = "" if flag.boolean else "=" + _placeholder(flag)
  default = "" if flag.default in (None, "") else " [%s]" % flag.default_as_str.strip("'")
  head = "  --%s%s%s" % ("[no]" if flag.boolean else "", flag.name, value)
  meaning = re.sub(r"^<[^>]*>: ", "", flag.help)  # the choices
  if _choices(flag) and _choices(flag) not in value:
    meaning += " One of %s." % _choices(flag).replace("|", ", ")
  wrapped = textwrap.wrap(meaning + default, _WIDTH - 30)
  if len(head) > 28:
    return [head] + [" " * 30 + line for line in wrapped]
  return [head.ljust(30) + wrapped[0]] + [" " * 30 + line for line in wrapped[1:]]


def _placeholder(flag) -> str:
  choices = _choices(flag)
  if choices and len(choices) < _WIDTH // 2:
    return choices
  if flag.name == "verbosity":
    return "LEVEL"
  return {"int": "N", "float": "X"}.get(flag.flag_type(), flag.name.split("_")[-1].upper())


def _choices(flag) -> str:
  return "|".join(getattr(flag.parser, "enum_values", None) or [])
