"""Holds the rules of the house, which are about sources and not about what they do.

Each check takes the root of a tree and returns a line `file:line: what is wrong` a violation. It is
applied to this checkout, where it must find nothing, and to a little tree that breaks its rule.
"""
from __future__ import annotations

import ast
import functools
import pathlib
import re
import subprocess
import sys

import pytest

from tf1ps.cli import console

ROOT = pathlib.Path(__file__).resolve().parents[1]
# From top to bottom: a room imports only rooms that stand after it.
ROOMS = ("cli", "deploy", "launch", "runner", "v1", "coordinator", "training", "monitoring",
         "program", "session", "checkpoint", "replication", "transfer", "pipeline", "state",
         "placement", "cluster", "graph", "doctor", "links", "compat")
# What gives the text of an error, what searches in a text, and where that is allowed.
TEXTS = frozenset(["args", "details", "message"])
TEXTS_OF = frozenset(["error_causes", "error_line", "failed_assertions", "failed_nodes", "repr",
                      "str"])
SEARCHES = frozenset(["endswith", "find", "findall", "finditer", "fullmatch", "index", "match",
                      "partition", "rfind", "rpartition", "search", "split", "startswith"])
MATCHES = {
  "tf1ps/compat/error_texts.py error_causes": "it takes the text apart, for all others",
  "tf1ps/compat/error_texts.py failed_assertions": "the lines of causes alone",
  "tf1ps/compat/error_texts.py failed_nodes": "the part without errors of other steps",
  # The line of a cause alone, where TensorFlow gives several events one code.
  "tf1ps/cluster/path_check.py _check": "a task that is unknown there",
  "tf1ps/compat/session_runs.py _is_dropped": "a cancelled run that nobody has cancelled",
  "tf1ps/compat/session_runs.py is_refused_run": "a run that is refused by mistake",
  "tf1ps/pipeline/batch_decoding.py explain_input_error": "the number of an error that Python has",
  "tf1ps/pipeline/queue_runners.py _with_hint": "an advice for one variable",
  "tf1ps/pipeline/record_retry.py _name_in": "the node, where the error has no operation",
  "tf1ps/replication/collectives.py is_late_message": "an assertion of ours",
  "tf1ps/replication/round_errors.py explain_round_error": "an assertion of ours",
  "tf1ps/replication/round_errors.py is_end_of_replicas": "the name of the closed queue",
  "tf1ps/state/queue_call.py _is_closed": "an enqueue into a closed queue",
  "tf1ps/state/queue_call.py _run_step": "an assertion of ours",
  # For advice or display only.
  "tf1ps/checkpoint/checkpoints.py _warn_once": "says each text once",
  "tf1ps/checkpoint/saving.py prepare": "leaves out the file's name",
  "tf1ps/cli/errors.py line": "advice for errors that end a program",
  "tf1ps/cli/errors.py near_file": "advice for a file that is not there",
  "tf1ps/cluster/gpu_errors.py _gpu_of": "the number of the GPU",
  "tf1ps/cluster/gpu_errors.py explain_gpu_error": "advice for the errors of CUDA",
  "tf1ps/program/contract.py build_model": "advice for an error of Python",
  "tf1ps/runner/numpy_hints.py numpy_hint": "advice for an error of NumPy",
  "tf1ps/runner/python2.py looks_like_python2": "advice for an error of Python",
  "tf1ps/session/run_directory.py _announce": "leaves out the file's name",
  # Errors of gRPC, which have one code for many events and no errors of others.
  "tf1ps/cluster/probe.py _failure": "why a task does not answer",
  "tf1ps/compat/worker_service.py get_version": "the version stands in the text only",
}
# Those that are about the logs themselves.
ABOUT_LOGS = frozenset("tests/%s.py" % name for name in (
  "cli/app_test", "compat/quiet_test", "conftest", "init_test", "layers_test",
  "runner/loader_test"))
# Files that may have the name of another file: a program has its subcommand's, v1 has TensorFlow's,
# and a job has an end for its workers and another for its ps.
NAMESAKES = frozenset(["v1/app", "v1/flags", "session/ending"] + [
  "cli/" + program for program in console.PROGRAMS])
HIDING = re.compile(r"'(WARN|WARNING|ERROR|FATAL|CRITICAL)'")
PYTHON_37 = {"feature_version": (3, 7)} if sys.version_info >= (3, 8) else {}


@functools.lru_cache(maxsize=None)
def nodes(path):
  """Every node of a file's tree."""
  return walk(ast.parse(path.read_text(encoding="utf-8"), str(path), **PYTHON_37))


@functools.lru_cache(maxsize=None)
def walk(tree):
  """The nodes of `ast.walk`, but for Load, Store and Del, in its order and in half of its time.

  A tree is walked once, as several checks look at all of its nodes.
  """
  found = [tree]
  for node in found:
    for value in vars(node).values():
      if isinstance(value, list):
        found += [one for one in value if isinstance(one, ast.AST)]
      elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
        found.append(value)
  return found


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


def same_names(root):
  """Files of tf1ps with the name of another file there."""
  first, found = {}, []
  for path in sources(root, "tf1ps"):
    place = str(path.relative_to(root / "tf1ps").with_suffix(""))
    if not path.stem.startswith("__") and place not in NAMESAKES:
      if first.setdefault(path.name, place) != place:
        found.append(report(root, path, 1, "has the name of " + first[path.name]))
  return found


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
          name.startswith(("tensorflow.python.", "tensorflow.core."))):
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


def import_circles(root):
  """Modules of one room that import each other, directly or through others of it."""
  found = []
  for room in ROOMS:
    paths = {".".join(path.relative_to(root).with_suffix("").parts): path
             for path in sources(root, "tf1ps/" + room)}
    imported = {name: {} for name in paths}
    for name, path in paths.items():
      for line, what in imports(root, path):
        target = what if what in paths else what.rpartition(".")[0]
        if target in paths and target != name:
          imported[name].setdefault(target, line)
    for name, path in paths.items():
      for target, line in sorted(imported[name].items()):
        if name in _reached(target, imported):
          found.append(report(root, path, line, "imports %s, which imports it" % target))
  return found


def _reached(name, imported):
  """The modules that a module imports, or that those import, and so on."""
  reached, left = set(), [name]
  while left:
    new = set(imported[left.pop()]) - reached
    reached |= new
    left += new
  return reached


def sleeping_tests(root):
  """Tests that sleep; programs of other people, and those of stock TensorFlow, may."""
  found = []
  for path in sources(root, "tests"):
    if path.parent in [root / "tests" / each for each in (
        "legacy/programs", "doctor/traps", "upstream")]:
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


def silent_tests(root):
  """Tests that hide what TensorFlow logs: it also appends that to the errors of later steps."""
  found = []
  for path in sources(root, "tests", "tools"):
    if str(path.relative_to(root)) in ABOUT_LOGS or path.parent == root / "tests/doctor/traps":
      continue
    for node in nodes(path):
      sets = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
        "disable", "setLevel", "set_verbosity")
      name = getattr(node, "value", getattr(node, "s", None))  # of a constant: 3.8 on, or 3.7
      if name == "TF_CPP_MIN_LOG_LEVEL" or sets and any(
          HIDING.search(ast.dump(each)) for each in node.args):
        found.append(report(root, path, node.lineno, "hides logs that users see"))
  return found


def _names_of_errors(function):
  """The names in a function that hold an error: caught, or an argument of this name or type."""
  names = {"error"}
  for node in walk(function):
    if isinstance(node, ast.ExceptHandler) and node.name:
      names.add(node.name)
    elif isinstance(node, ast.arg) and node.annotation is not None and re.search(
        r"'\w*(Error|Exception)'", ast.dump(node.annotation)):
      names.add(node.arg)
  return names


def _is_text(node, errors, texts):
  """Whether an expression is the text of an error; `texts` are names that such a text has."""
  def is_error(part):
    return (isinstance(part, ast.Name) and part.id in errors
            or isinstance(part, ast.Attribute) and part.attr in ("error", "__cause__"))

  if isinstance(node, ast.Name):
    return node.id in texts
  if isinstance(node, ast.Attribute):
    return node.attr in TEXTS and is_error(node.value)
  if isinstance(node, ast.JoinedStr):
    return any(is_error(part.value) or _is_text(part.value, errors, texts)
               for part in node.values if isinstance(part, ast.FormattedValue))
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
    parts = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
    if any(map(is_error, parts)):
      return True
  if isinstance(node, ast.Call):
    if isinstance(node.func, ast.Attribute):  # a method of a text, or one that makes it
      made = node.args if node.func.attr == "format" else []
      return (_is_text(node.func.value, errors, texts) or any(map(is_error, made))
              or node.func.attr in ("format_exc", "format_exception", "format_exception_only"))
    if getattr(node.func, "id", "") == "getattr" and is_error(node.args[0]):
      return getattr(node.args[1], "value", getattr(node.args[1], "s", None)) in TEXTS
    return (getattr(node.func, "id", "") in TEXTS_OF and bool(node.args) and (
      is_error(node.args[0]) or _is_text(node.args[0], errors, texts)))
  parts = {ast.BinOp: ["left", "right"], ast.BoolOp: ["values"], ast.Subscript: ["value"],
           ast.Tuple: ["elts"]}.get(type(node), [])
  return any(_is_text(part, errors, texts) for name in parts
             for part in _listed(getattr(node, name)))


def _listed(value):
  return value if isinstance(value, list) else [value]


def _given_texts(path):
  """The (function, argument) of a file to which another function there gives an error's text."""
  functions = {node.name: [one.arg for one in node.args.args if one.arg != "self"]
               for node in nodes(path) if isinstance(node, ast.FunctionDef)}
  found = set()
  for function in nodes(path):
    if isinstance(function, ast.FunctionDef):
      errors = _names_of_errors(function)
      texts = _names_of_texts(function, errors)
      for node in walk(function):
        if isinstance(node, ast.Call):
          name = getattr(node.func, "id", getattr(node.func, "attr", ""))
          found |= {(name, argument) for argument, given in zip(functions.get(name, []), node.args)
                    if _is_text(given, errors, texts)}
  return found


def _names_of_texts(function, errors, given=()):
  """The names in a function that hold the text of an error."""
  texts = {argument for name, argument in given if name == function.name}
  for node in walk(function):
    pairs = []
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and isinstance(
        node.targets[0], ast.Tuple):
      pairs = zip(node.value.elts, node.targets[0].elts)
    elif isinstance(node, ast.Assign):
      pairs = [(node.value, target) for target in node.targets]
    elif isinstance(node, (ast.For, ast.comprehension)):
      pairs = [(node.iter, node.target)]
    for value, target in pairs:
      if _is_text(value, errors, texts):
        texts |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
  return texts


@functools.lru_cache(maxsize=None)
def _matches(root):
  """Every (file and function, file, line) in which the text of an error is compared."""
  found = set()
  for path in sources(root, "tf1ps", "tools"):
    given = _given_texts(path)
    for function in nodes(path):
      if not isinstance(function, ast.FunctionDef):
        continue
      errors = _names_of_errors(function)
      texts = _names_of_texts(function, errors, given)
      for node in walk(function):
        compared = []
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
          compared = [node.left] + node.comparators
        elif isinstance(node, ast.Call):
          called = [one for one in [node.func] + node.args if isinstance(one, ast.Attribute)]
          if any(one.attr in SEARCHES for one in called):
            compared = [one.value for one in called] + node.args
        if any(_is_text(one, errors, texts) for one in compared):
          found.add(("%s %s" % (path.relative_to(root), function.name), path, node.lineno))
  return sorted(found)


def matched_errors(root):
  """Functions that recognise an error by its text, to which TensorFlow appends those of others."""
  return [report(root, path, line, "recognise an error by its type, its code or a value")
          for place, path, line in _matches(root) if place not in MATCHES]


CHECKS = (upward_imports, strange_rooms, same_names, flags_outside_cli, outside_imports,
          private_tensorflow, deep_imports, import_circles, sleeping_tests, silent_tests,
          newer_syntax, matched_errors)


@pytest.mark.parametrize("check", CHECKS)
def test_this_checkout_holds(check):
  assert sources(ROOT, "tf1ps"), "no sources found, so nothing was checked"
  found = check(ROOT)
  assert not found, "\n".join([check.__name__, *found])


CAUGHT = "def f():\n  try:\n    g()\n  except ValueError as problem:\n    %s"
MATCHED = ["tf1ps/state/run.py:5: recognise an error by its type, its code or a value"]


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
    (silent_tests, "tests/run_test.py", "tf.logging.set_verbosity(tf.logging.ERROR)", [
        "tests/run_test.py:1: hides logs that users see"]),
    (silent_tests, "tests/run_test.py", "log.setLevel('ERROR')\nlog.setLevel(logging.ERROR)", [
        "tests/run_test.py:1: hides logs that users see",
        "tests/run_test.py:2: hides logs that users see"]),
    (silent_tests, "tests/run_test.py", "import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'", [
        "tests/run_test.py:2: hides logs that users see"]),
    (silent_tests, "tests/run_test.py", "logging.getLogger('tf1ps').setLevel(logging.INFO)", []),
    (newer_syntax, "examples/one.py", "if (n := 1):\n  pass", [
        "examples/one.py:1: not Python 3.7"]),
    (newer_syntax, "tf1ps/state/run.py", "def f(a, /): pass", [
        "tf1ps/state/run.py:1: not Python 3.7"]),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "if 'reset' in str(problem): pass", MATCHED),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "_X.search(problem.message)", MATCHED),
    (matched_errors, "tf1ps/state/run.py",
     CAUGHT % "_, text = 1, str(problem).lower(); text.find('x')", MATCHED),
    (matched_errors, "tf1ps/state/run.py",
     CAUGHT % "any(map(_X.match, error_causes(problem)))", MATCHED),
    (matched_errors, "tf1ps/state/run.py",
     CAUGHT % "any(one.startswith('x') for one in error_causes(problem))", MATCHED),
    (matched_errors, "tf1ps/state/run.py", "def f(error):\n\n\n\n  x = str(error) == 1", MATCHED),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "'x' in f'{problem}: no'", MATCHED),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "'x' in '%s: %s' % (1, problem)", MATCHED),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "'{}'.format(problem).find('x')", MATCHED),
    (matched_errors, "tf1ps/state/run.py",
     CAUGHT % "getattr(problem, 'message', '').startswith('x')", MATCHED),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "'x' in traceback.format_exc()", MATCHED),
    (matched_errors, "tf1ps/state/run.py",
     CAUGHT % "_is_it(str(problem))" + "\ndef _is_it(text):\n  return text == 'x'", [
        "tf1ps/state/run.py:7: recognise an error by its type, its code or a value"]),
    (matched_errors, "tf1ps/state/run.py", CAUGHT % "raise Other(str(problem)) from problem", []),
    (matched_errors, "tf1ps/cluster/path_check.py",
     CAUGHT.replace("f()", "_check()") % "'x' in str(problem)", []),
])
def test_a_tree_that_breaks_the_rule(check, file, source, found, tmp_path):
  path = tmp_path / file
  path.parent.mkdir(parents=True)
  path.write_text(source)
  assert check(tmp_path) == found


def test_files_of_one_name(tmp_path):
  for place in ("cli/run", "cli/texts", "state/run", "state/texts", "v1/contrib/run", "v1/texts"):
    path = tmp_path / "tf1ps" / (place + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
  assert same_names(tmp_path) == [
    "tf1ps/state/texts.py:1: has the name of cli/texts",
    "tf1ps/v1/contrib/run.py:1: has the name of state/run",
    "tf1ps/v1/texts.py:1: has the name of cli/texts"]


def test_a_circle_of_three_modules_and_one_beside_it(tmp_path):
  room = tmp_path / "tf1ps" / "state"
  room.mkdir(parents=True)
  for name, source in (("a", "from tf1ps.state import b"), ("b", "import numpy\nfrom . import c"),
                       ("c", "def late():\n  from tf1ps.state.a import A"),
                       ("d", "from tf1ps.state import a, X")):
    (room / (name + ".py")).write_text(source)
  assert import_circles(tmp_path) == [
    "tf1ps/state/a.py:1: imports tf1ps.state.b, which imports it",
    "tf1ps/state/b.py:2: imports tf1ps.state.c, which imports it",
    "tf1ps/state/c.py:2: imports tf1ps.state.a, which imports it"]


def test_each_place_that_may_match_errors_still_does():
  assert set(MATCHES) <= {place for place, _, _ in _matches(ROOT)}


def test_importing_tf1ps_does_not_import_tensorflow():
  program = "import tf1ps, sys; assert 'tensorflow' not in sys.modules"
  subprocess.run([sys.executable, "-c", program], check=True)
