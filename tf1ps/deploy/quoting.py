"""Fills templates, and quotes values as the languages of the files ask for it."""

from __future__ import annotations

import json
import pkgutil
import re
import textwrap
from typing import Sequence

_PLACE = re.compile(r"^(?P<indent> *)\{\{(?P<lines>\w+)\}\}\n|\{\{(?P<word>\w+)\}\}", re.MULTILINE)


def fill(template: str, **values) -> str:
  """Returns a template of the folder templates/ with values in place of each {{name}}.

  A name alone on a line stands for lines, which get its indentation; without lines it vanishes.
  """
  text = pkgutil.get_data(__package__, "templates/" + template).decode("utf-8")

  def value(match):
    if match.group("word"):
      return str(values[match.group("word")])
    lines = str(values[match.group("lines")]).strip("\n")
    return textwrap.indent(lines, match.group("indent")) + "\n" if lines else ""

  return _PLACE.sub(value, text)


def yaml(value) -> str:
  """Returns a value in one line of YAML: JSON, which YAML contains."""
  return json.dumps(value, ensure_ascii=False)


def yaml_list(values: Sequence[str]) -> str:
  """Returns texts as a list of YAML with a line each."""
  return "\n".join("- " + yaml(value) for value in values)


def undollar(text: str) -> str:
  """Returns a text in which Kubernetes, Compose and systemd find no variable to replace."""
  return text.replace("$", "$$")


def systemd_word(text: str) -> str:
  """Returns a word of a unit: in quotes, and without specifiers.

  A command line has variables, too: give it an `undollar`ed text.
  """
  escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
  return escaped if re.fullmatch(r"[\w./:=,@+-]+", escaped, re.ASCII) else '"%s"' % escaped
