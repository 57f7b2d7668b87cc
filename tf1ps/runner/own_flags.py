"""Finds the flags of a command line that no file of a program has.

`tf.app.run` and `parse_known_args` silently leave out a flag that nothing defines. This module
reads the program's own files, and runs nothing: a flag is known if a file has its name as a text.
"""

from __future__ import annotations

import ast
import difflib
import re
from typing import Callable, List, Optional, Set, Tuple

from tf1ps.runner.files import find_own_files

_FLAG = re.compile(r"--([A-Za-z_][\w-]*)(=|$)")
_HELP = ("help", "helpfull", "helpshort", "helpxml")  # of absl and argparse


class OwnFlags:
  """The flags in files of a program.

  Attributes:
    texts: all strings in the files.
    defined: the names of the flags that the files define by absl, `tf.flags` or argparse.
    ignores: whether the program runs with flags that nothing defines.
  """

  def __init__(self):
    self.texts: Set[str] = set()
    self.defined: Set[str] = set()
    self.ignores = False

  def look(self, tree: ast.Module) -> None:
    """Reads a parsed file."""
    for node in ast.walk(tree):
      self.texts.update(_texts([node]))
      name = getattr(node, "attr", getattr(node, "id", ""))
      # `absl.app.run` refuses such flags, and TensorFlow's does not.
      self.ignores |= name == "parse_known_args" or name == "run" and _is_app_of_tensorflow(node)
      if isinstance(node, ast.Call):
        called, given = getattr(node.func, "attr", getattr(node.func, "id", "")), _texts(node.args)
        if called.startswith("DEFINE_"):
          self.defined.update(given[:1])
        elif called == "add_argument":
          self.defined.update(text[2:] for text in given if text.startswith("--"))

  def has(self, name: str) -> bool:
    """Whether a flag may be the program's."""
    names = {name, name.replace("-", "_"), name.replace("_", "-")}
    names |= {spelling[len("no"):] for spelling in names if spelling.startswith("no")}
    return bool(names & self.texts or {"--" + spelling for spelling in names} & self.texts) or any(
      flag.startswith(name) for flag in self.defined)  # argparse takes the beginning of a name


def ignored_flags(paths: List[str], arguments: List[str],
                  parse: Callable[[str], Optional[ast.Module]]) -> List[Tuple[str, str]]:
  """Returns the flags that a program ignores, each with a flag that is like it, or "".

  A flag that only a library defines is among them.

  Args:
    paths: the files that the program starts with.
    arguments: the program's arguments.
    parse: as for `find_own_files`.
  """
  own = OwnFlags()

  def look(path):
    tree = parse(path)
    if tree is not None:
      own.look(tree)
    return tree

  given = [match.group(1) for match in map(_FLAG.match, arguments) if match]
  unknown = [name for name in given if name not in _HELP]
  if unknown and paths:  # a module that Python does not find has none
    look(paths[-1])  # most programs define their flags there
    if not all(map(own.has, unknown)):
      find_own_files(paths, look)
  unknown = [name for name in unknown if not own.has(name)]
  if not (unknown and own.ignores and own.defined):
    return []
  return [(name, "".join(difflib.get_close_matches(name, own.defined, n=1))) for name in unknown]


def _texts(nodes) -> List[str]:
  """Returns the strings among nodes; Python 3.7 has them as `s`."""
  values = (getattr(node, "value", getattr(node, "s", None)) for node in nodes)
  return [value for value in values if isinstance(value, str)]


def _is_app_of_tensorflow(node) -> bool:
  """Whether a node is `tf.app.run`, and not `app.run` or `absl.app.run`."""
  app = getattr(node, "value", None)
  return getattr(app, "attr", "") == "app" and getattr(app.value, "id", "") != "absl"
