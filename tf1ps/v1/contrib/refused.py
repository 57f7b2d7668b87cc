"""Packages of tf.contrib without a successor: a program may import them, but their use is refused.

A program that is prepared for the absence of such a package must see the absence: if the program
catches the error of an import, or asks by `hasattr`, the package does not exist.
"""

from __future__ import annotations

import ast
import linecache
import re
import types

from tf1ps.v1 import renamed as _renamed

_ABSENCE = re.compile(r"'(ImportError|ModuleNotFoundError|AttributeError|Exception)'")
_QUESTION = re.compile(r"\b(hasattr|getattr)\(")


class Refused(types.ModuleType):
  """A package, or a name that a program takes from it: all names exist, and their calls raise."""

  def __init__(self, name: str, advice: str):
    """Takes the name below tf.contrib, and the advice what to use instead; "" without advice."""
    super().__init__("tf1ps.v1.contrib." + name, "tf.contrib.%s: refused at its use." % name)
    self.__path__ = []
    vars(self)["_error"] = "tf.contrib.%%s is not there: %s." % (
      advice or "TensorFlow 1.15 is the last with it")
    vars(self)["_advice"] = advice

  def __getattr__(self, name):
    if name.startswith("__"):
      raise AttributeError(name)
    value = Refused("%s.%s" % (self.__name__.partition("contrib.")[2], name), self._advice)
    setattr(self, name, value)
    return value

  def __call__(self, *unused_args, **unused_kwargs):
    raise AttributeError(self._error % self.__name__.partition("contrib.")[2])

  def __mro_entries__(self, unused_bases):
    return self()

  def __instancecheck__(self, unused_instance):
    return False


def is_guarded() -> bool:
  """Whether the program's running line is prepared for the absence of the name that it uses."""
  frame = _renamed.program_frame()
  if frame is None:
    return False
  path, number = frame.f_code.co_filename, frame.f_lineno
  if _QUESTION.search(linecache.getline(path, number)):
    return True
  try:
    tree = ast.parse("".join(linecache.getlines(path)))
  except SyntaxError:  # Python 2
    return False
  return any(
    isinstance(node, ast.Try) and node.body[0].lineno <= number < node.handlers[0].lineno
    for node in ast.walk(tree) if any(
      handler.type is None or _ABSENCE.search(ast.dump(handler.type))
      for handler in getattr(node, "handlers", ())))
