"""Holds the rules of the house, which are about sources and not about what they do.

Each check takes the root of a tree and returns a line `file:line: what is wrong` a violation. It is
applied to this checkout, where it must find nothing, and to a little tree that breaks its rule.
"""
from __future__ import annotations

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# From top to bottom: a room imports only rooms that stand after it.
ROOMS = ("cli", "deploy", "launch", "runner", "v1", "coordinator", "training", "monitoring",
         "program", "session", "checkpoint", "replication", "transfer", "pipeline", "state",
         "placement", "cluster", "graph", "doctor", "links", "compat")
PYTHON_37 = {"feature_version": (3, 7)} if sys.version_info >= (3, 8) else {}


@functools.lru_cache(maxsize=None)
def nodes(path):
  """Every node of a file's tree; walked once, as several checks look at all of them."""
  return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path), **PYTHON_37)))


def sources(root, *folders):
  """Every Python file under these folders, sorted."""
  return sorted(path for folder in folders for path in (root / folder).glob("**/*.py"))


def imports(root, path):
  """Yields (line, dotted name) of each thing that a file imports, anywhere in it."""
  package = path.relative_to(root).parent.parts
  for node in nodes(path):
    if isinstance(node, ast.Import):
      for alias in node.names:
        yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom):
      origin = package[:len(package) - node.level + 1] if node.level else ()
      for alias in node.names:
        yield node.lineno, ".".join((*origin, *filter(None, [node.module]), alias.name))


def report(root, path, line, wrong):
  return "{}:{}: {}".format(path.relative_to(root), line, wrong)


def upward_imports(root):
  """Imports that lead up, or through tf1ps itself, which knows all rooms; cli stands above it."""
  found = []
  for room in ROOMS[1:]:
    below = ROOMS[ROOMS.index(room):] + ("version", "_lazy")
    for path in sources(root, "tf1ps/" + room):
      for line, name in imports(root, path):
        package, imported = (name + ".").split(".")[:2]
        if package == "tf1ps" and imported not in below:
          found.append(report(root, path, line, "{} imports {}".format(room, name)))
  return found


def strange_rooms(root):
  """Folders of tf1ps that are no room, or that no wheel would hold.

  The folders of v1 are TensorFlow's namespaces.
  """
  folders = {path.parent for path in sources(root, "tf1ps")} - {root / "tf1ps"}
  rooms = {root / "tf1ps" / room for room in ROOMS}
  rooms |= {folder for folder in folders if root / "tf1ps" / "v1" in folder.parents}
  return ([report(root, path, 1, "no room") for path in sorted(folders - rooms)]
          + [report(root, path, 1, "no __init__.py") for path in sorted(folders)
             if not (path / "__init__.py").exists()])


def flags_outside_cli(root):
  return [report(root, path, line, "only cli has flags")
          for path in sources(root, "tf1ps") if path.parent != root / "tf1ps" / "cli"
          for line, name in imports(root, path) if (name + ".").startswith("absl.flags.")]


def outside_imports(root):
  """What tf1ps or an example takes from the checkout's other folders.

  Files in examples/ that are no examples, but run them all and make the table of them, may.
  """
  of_all = ["examples/%s.py" % name for name in ("__main__", "checking", "contents")]
  outside = ("benchmarks", "bin", "examples", "tests", "tf1ps_examples", "tools")
  return [report(root, path, line, "imports " + name)
          for path in sources(root, "tf1ps", "examples")
          if str(path.relative_to(root)) not in of_all
          for line, name in imports(root, path) if name.split(".")[0] in outside]


def private_tensorflow(root):
  found = []
  for path in sources(root, "benchmarks", "bin", "examples", "tests", "tf1ps", "tools"):
    if path.parent.name == "compat":
      continue
    for line, name in imports(root, path):
      if name.split(".")[0] == "tensorflow_core" or (
          name.split(".")[0] == "tensorflow" and {"python", "core"} & set(name.split("."))):
        found.append(report(root, path, line, "imports " + name))
    for node in nodes(path):
      if (isinstance(node, ast.Attribute) and node.attr in ("python", "core")
          and getattr(node.value, "id", "") in ("tf", "tensorflow")):
        found.append(report(root, path, node.lineno, "uses tensorflow." + node.attr))
  return found


def deep_imports(root):
  """Imports that reach past the names that a room or tf1ps exports.

  Within a room modules import each other. A test may import what it mirrors. The namespaces of v1
  are public.
  """
  found = []
  for path in sources(root, "benchmarks", "examples", "tf1ps"):
    parts = path.relative_to(root).parts
    own = parts[1] if parts[0] == "tf1ps" and len(parts) >= 3 else None
    for line, name in imports(root, path):
      package, room, *rest = (name + "..").split(".")[:4]
      if package != "tf1ps" or room not in ROOMS or room in (own, "cli", "v1"):
        continue
      if rest[0] and (root / "tf1ps" / room / (rest[0] + ".py")).exists():
        found.append(report(root, path, line, "imports %s, which is no public name" % name))
  return found


def sleeping_tests(root):
  """Tests that sleep; the legacy programs and the doctor's traps do as such programs do."""
  found = []
  for path in sources(root, "tests"):
    if path.parent in (root / "tests" / "legacy" / "programs", root / "tests" / "doctor" / "traps"):
      continue
    lines = [line for line, name in imports(root, path) if name == "time.sleep"]
    lines += [node.lineno for node in nodes(path)
              if isinstance(node, ast.Attribute) and node.attr == "sleep"
              and getattr(node.value, "id", "") == "time"]
    found += [report(root, path, line, "wait for a condition instead") for line in lines]
  return found


def newer_syntax(root):
  found = []
  for path in sources(root, "benchmarks", "bin", "examples", "tests", "tf1ps"):
    try:
      nodes(path)
    except SyntaxError as error:
      found.append(report(root, path, error.lineno, "not Python 3.7"))
  return found


CHECKS = (upward_imports, strange_rooms, flags_outside_cli, outside_imports, private_tensorflow,
          deep_imports, sleeping_tests, newer_syntax)


@pytest.mark.parametrize("check", CHECKS)
def test_this_checkout_holds(check):
  assert sources(ROOT, "tf1ps"), "no sources found, so nothing was checked"
  found = check(ROOT)
  assert not found, "\n".join([check.__name__, *found])


@pytest.mark.parametrize("check, file, source, found", [
    (upward_imports, "tf1ps/state/run.py", "from tf1ps.training import loop", [
        "tf1ps/state/run.py:1: state imports tf1ps.training.loop"]),
    (upward_imports, "tf1ps/state/run.py", "def late():\n  from ..launch import tasks", [
        "tf1ps/state/run.py:2: state imports tf1ps.launch.tasks"]),
    (upward_imports, "tf1ps/state/run.py", "import tf1ps.estimator.run as run", [
        "tf1ps/state/run.py:1: state imports tf1ps.estimator.run"]),
    (upward_imports, "tf1ps/state/run.py", "from tf1ps import FIFOQueue\nimport tf1ps", [
        "tf1ps/state/run.py:1: state imports tf1ps.FIFOQueue",
        "tf1ps/state/run.py:2: state imports tf1ps"]),
    (upward_imports, "tf1ps/state/run.py", "from . import beat\nfrom tf1ps.state import beat\n"
     "from ..cluster import spec\nfrom tf1ps import compat, version\nimport numpy", []),
    (upward_imports, "tf1ps/cli/ps.py", "import tf1ps\nfrom tf1ps.launch import tasks", []),
    (strange_rooms, "tf1ps/utils/text.py", "", [
        "tf1ps/utils:1: no room", "tf1ps/utils:1: no __init__.py"]),
    (strange_rooms, "tf1ps/state/__init__.py", "", []),
    (strange_rooms, "tf1ps/v1/nn/__init__.py", "", []),
    (strange_rooms, "tf1ps/v1/nn/cells.py", "", ["tf1ps/v1/nn:1: no __init__.py"]),
    (flags_outside_cli, "tf1ps/state/run.py", "from absl import app, flags", [
        "tf1ps/state/run.py:1: only cli has flags"]),
    (flags_outside_cli, "tf1ps/cli/ps.py", "from absl import flags", []),
    (outside_imports, "tf1ps/cli/ps.py", "import tf1ps_examples.digits", [
        "tf1ps/cli/ps.py:1: imports tf1ps_examples.digits"]),
    (outside_imports, "examples/one.py", "from . import other", [
        "examples/one.py:1: imports examples.other"]),
    (outside_imports, "examples/one.py", "from tf1ps import training", []),
    (private_tensorflow, "examples/one.py", "from tensorflow.python.framework import ops", [
        "examples/one.py:1: imports tensorflow.python.framework.ops"]),
    (private_tensorflow, "tf1ps/state/run.py", "import tensorflow as tf\nx = tf.python.eager", [
        "tf1ps/state/run.py:2: uses tensorflow.python"]),
    (private_tensorflow, "tf1ps/compat/scope.py", "import tensorflow.python.ops", []),
    (private_tensorflow, "examples/one.py", "import tensorflow.compat.v1 as tf\ntf.train", []),
    (deep_imports, "examples/one.py", "from tf1ps.state import Barrier", []),
    (deep_imports, "tf1ps/v1/nn/cells.py", "from tf1ps.v1 import graph_mode", []),
    (sleeping_tests, "tests/run_test.py", "import time\n\ntime.sleep(1)", [
        "tests/run_test.py:3: wait for a condition instead"]),
    (sleeping_tests, "tests/run_test.py", "from time import sleep", [
        "tests/run_test.py:1: wait for a condition instead"]),
    (sleeping_tests, "tests/legacy/programs/old.py", "import time\n\ntime.sleep(1)", []),
    (newer_syntax, "examples/one.py", "if (n := 1):\n  pass", [
        "examples/one.py:1: not Python 3.7"]),
    (newer_syntax, "tf1ps/state/run.py", "def f(a, /): pass", [
        "tf1ps/state/run.py:1: not Python 3.7"]),
])
def test_a_tree_that_breaks_the_rule(check, file, source, found, tmp_path):
  path = tmp_path / file
  path.parent.mkdir(parents=True)
  path.write_text(source)
  assert check(tmp_path) == found


def test_importing_tf1ps_does_not_import_tensorflow():
  program = "import tf1ps, sys; assert 'tensorflow' not in sys.modules"
  subprocess.run([sys.executable, "-c", program], check=True)
