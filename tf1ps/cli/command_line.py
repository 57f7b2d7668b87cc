"""Looks at a command line before it is parsed. Imports nothing heavy."""

from __future__ import annotations

from typing import List, Optional, Sequence

from tf1ps.training import of_program


def find_value(argv: Sequence[str], name: str) -> Optional[str]:
  """Returns the text of a flag on a command line that is not parsed yet; None without the flag.

  The last one counts, as for absl.
  """
  found = None
  for position, text in enumerate(argv):
    given, has_value, value = text.lstrip("-").partition("=")
    if text.startswith("-") and given == name:
      found = value if has_value else "".join(argv[position + 1:position + 2])
  return found


def without_others(argv, program) -> List[str]:
  """Returns the arguments without the flags that only the programs of other tasks have."""
  own = [option.name for option in of_program(program)]
  others = {option.name: option.parse is bool
            for option in of_program("task")
            if program != "local" and option.name not in own}
  kept, is_value = [], False
  for text in argv:
    if is_value:  # of a flag that was left out
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
