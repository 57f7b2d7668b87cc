"""Writes the stubs of tf1ps and its rooms: their public names, for editors and type checkers.

These read no program, so they see no name that a room imports when it is first used. A test
compares the stubs with the tables of the rooms. After a change of a table: python -m tests.stubs
"""
from __future__ import annotations

import ast
import pathlib
from typing import Dict

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEAD = "# The public names, for editors and type checkers. Made by `python -m tests.stubs`.\n"


def stubs(root: pathlib.Path = ROOT) -> Dict[pathlib.Path, str]:
  """Returns the text of each stub by its path; v1 has none, because its names are TensorFlow's.

  The table of a room is the dict in its `__init__`: {module: names}. That of tf1ps has rooms in
  place of modules.
  """
  made = {}
  for path in sorted(root.glob("tf1ps/__init__.py")) + sorted(root.glob("tf1ps/*/__init__.py")):
    package = ".".join(path.relative_to(root).parent.parts)
    if package == "tf1ps.v1":
      continue
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules, = [ast.literal_eval(node) for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    if package == "tf1ps":
      modules["version"] = ["__version__"]
    made[path.with_suffix(".pyi")] = HEAD + "".join(
      "from %s.%s import %s as %s\n" % (package, module, name, name)
      for module in sorted(modules) for name in sorted(modules[module]))
  return made


if __name__ == "__main__":
  for stub, lines in stubs().items():
    stub.write_text(lines, encoding="utf-8")
