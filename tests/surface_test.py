"""Holds the public surface: what each room exports, and what documents and others may import."""
from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import re
import subprocess
import sys

import pytest

import tf1ps
from tests import stubs

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = sorted(path.parent.name for path in (ROOT / "tf1ps").glob("*/__init__.py"))
# v1 is TensorFlow's surface, and importing it changes TensorFlow's mode.
LIBRARY = [room for room in ROOMS if room != "v1"]
_IMPORT = re.compile(
  r"^\s*(?:from (tf1ps[\w.]*) import \(?([\w, ]+)|import (tf1ps[\w.]*))", re.MULTILINE)
EXAMPLES = sorted((ROOT / "examples").glob("**/*.py"))
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "BUILD.md", *(ROOT / "docs").glob("*.md")])


def modules_of(room):
  paths = (ROOT / "tf1ps" / room).glob("*.py")
  return sorted(path.stem for path in paths if path.stem != "__init__")


def test_there_are_rooms():
  assert {"cluster", "state", "training", "program", "session", "checkpoint"} <= set(LIBRARY)


@pytest.mark.parametrize("room", LIBRARY)
def test_every_exported_name_is_there_and_no_module_hides_it(room):
  package = importlib.import_module("tf1ps." + room)
  assert package.__all__ and package.__doc__
  assert not set(package.__all__) & set(modules_of(room))
  for name in package.__all__:
    assert not name.startswith("_")
    getattr(package, name)
  assert set(package.__all__) <= set(dir(package))
  with pytest.raises(AttributeError, match="module 'tf1ps.%s' has no attribute 'Absent'" % room):
    package.Absent()


def test_stubs_have_the_lines_of_the_tables():
  made = stubs.stubs()
  assert made.keys() == set((ROOT / "tf1ps").glob("**/*.pyi"))
  for path, text in made.items():
    assert path.read_text(encoding="utf-8") == text, "call python -m tests.stubs"


@pytest.mark.parametrize("package", ["tf1ps"] + ["tf1ps." + room for room in LIBRARY])
def test_a_stub_has_every_exported_name_and_no_other(package):
  text = (ROOT / package.replace(".", "/") / "__init__.pyi").read_text(encoding="utf-8")
  found = re.findall(r"^from ([\w.]+) import (\w+) as (\w+)$", text, re.MULTILINE)
  assert len(found) == len(text.splitlines()) - 1
  assert sorted(name for _, name, _ in found) == sorted(importlib.import_module(package).__all__)
  for origin, name, public in found:
    assert name == public
    assert getattr(importlib.import_module(origin), name) is getattr(
      importlib.import_module(package), name)


def test_importing_a_room_imports_nothing_heavy():
  program = ("import importlib, json, sys\n"
             "for room in %r: importlib.import_module('tf1ps.' + room)\n"
             "print(json.dumps([n for n in ('tensorflow', 'numpy', 'grpc', 'absl')\n"
             "                  if n in sys.modules]))" % LIBRARY)
  done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
  assert json.loads(done.stdout.decode()) == []


@pytest.mark.parametrize("room", LIBRARY)
def test_every_error_is_exported_and_is_an_error_of_ours(room):
  package = importlib.import_module("tf1ps." + room)
  for module in modules_of(room):
    if module.endswith("main"):
      continue
    module = importlib.import_module("tf1ps.%s.%s" % (room, module))
    for name, value in vars(module).items():
      if (isinstance(value, type) and issubclass(value, BaseException) and not name.startswith("_")
          and value.__module__ == module.__name__):
        assert issubclass(value, tf1ps.Error), value
        assert getattr(package, name) is value


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_import_only_public_names(document):
  for origin, names, plain in _IMPORT.findall(document.read_text(encoding="utf-8")):
    parts = (origin or plain).split(".")
    if parts[:2] == ["tf1ps", "v1"]:
      continue
    assert len(parts) <= 2, "%s imports %s" % (document.name, origin or plain)
    package = importlib.import_module(".".join(parts))
    for name in filter(None, re.split(r"[ ,]+", names.split(" as ")[0])):
      assert name in package.__all__ or (parts == ["tf1ps"] and name in ROOMS), (
        "%s imports %s from %s" % (document.name, name, origin))


# Types: of the names that users import.


def users_names():
  """{"package.name": value} of tf1ps's exports, and of those that texts import from its rooms."""
  names = {("tf1ps", name) for name in tf1ps.__all__}
  for path in DOCUMENTS + EXAMPLES:
    text = path.read_text(encoding="utf-8")
    for origin, imported in re.findall(
        r"^\s*from (tf1ps[\w.]*) import (\([^)]*\)|.*)", text, re.MULTILINE):
      for name, alias in re.findall(r"(\w+)(?: as (\w+))?", imported):
        names.add((origin, name))
        if origin == "tf1ps" and name in LIBRARY:
          names |= {("tf1ps." + name, used)
                    for used in re.findall(r"\b%s\.(\w+)" % (alias or name), text)}
  packages = {"tf1ps." + room: importlib.import_module("tf1ps." + room) for room in LIBRARY}
  packages["tf1ps"] = tf1ps
  return {"%s.%s" % (package, name): getattr(packages[package], name)
          for package, name in names
          if package in packages and name in packages[package].__all__}


def functions_of(value):
  """The functions that a caller of a name calls: the function, or the methods that are ours."""
  if not isinstance(value, type):
    return [value] if inspect.isroutine(value) else []
  found = []
  for one in value.__mro__:
    for name, member in vars(one).items() if one.__module__.split(".")[0] == "tf1ps" else ():
      if name.startswith("_") and name not in ("__call__", "__enter__", "__exit__", "__init__"):
        continue
      member = getattr(member, "__func__", getattr(member, "fget", member))
      found += [member] if inspect.isfunction(member) else []
  return found


def unhinted(function):
  """The parameters of a function that have no type, and "return"."""
  if "__signature__" in vars(function):
    return []  # one of TensorFlow's, which has no types
  signature = inspect.signature(function)
  found = [name for name, parameter in signature.parameters.items()
           if parameter.annotation is parameter.empty and name not in ("self", "cls")]
  if signature.return_annotation is signature.empty and function.__name__ != "__init__":
    found.append("return")
  return found


def test_what_users_import_has_complete_types():
  names = users_names()
  assert {"tf1ps.Server", "tf1ps.launch.find_free_addresses", "tf1ps.state.DoneQueues",
          "tf1ps.pipeline.text_line_dataset"} <= set(names)
  found = {"%s: %s" % (name, function.__qualname__): unhinted(function)
           for name, value in names.items() for function in functions_of(value)}
  assert "tf1ps.FIFOQueue: _LosslessQueue.get" in found
  assert {place: lacking for place, lacking in found.items() if lacking} == {}


def test_a_function_without_a_type_is_found():
  class Half:
    def __init__(self, given: int, bare=None):
      pass

    @property
    def size(self):
      pass

    @staticmethod
    def make(*args) -> None:
      pass

  Half.__module__ = "tf1ps.state.half"
  found = {one.__name__: unhinted(one) for one in functions_of(Half)}
  assert found == {"__init__": ["bare"], "size": ["return"], "make": ["args"]}


def test_mypy_reads_every_module_that_users_import_from():
  expected = {"tests/typed_program.py"}
  for value in users_names().values():
    if hasattr(value, "__module__"):
      path = pathlib.Path(inspect.getfile(sys.modules[value.__module__]))
      expected.add(str(path.relative_to(ROOT)))
  settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
  listed, = re.findall(
    r"^\[tool\.mypy\]\n.*?^files = \[\n(.*?)^\]", settings, re.DOTALL | re.MULTILINE)
  assert set(re.findall(r'"(.+?)"', listed)) == expected


def test_the_typed_program_has_every_name_of_tf1ps():
  text = (ROOT / "tests" / "typed_program.py").read_text(encoding="utf-8")
  assert set(re.findall(r"\btf1ps\.([A-Za-z_]+)(?![\w.])", text)) >= set(tf1ps.__all__)
