"""Holds the public surface: what each room exports, and what documents and others may import."""
from __future__ import annotations

import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest

import tf1ps

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = sorted(path.parent.name for path in (ROOT / "tf1ps").glob("*/__init__.py"))
# v1 is TensorFlow's surface, and importing it changes TensorFlow's mode.
LIBRARY = [room for room in ROOMS if room != "v1"]
_IMPORT = re.compile(
  r"^\s*(?:from (tf1ps[\w.]*) import \(?([\w, ]+)|import (tf1ps[\w.]*))", re.MULTILINE)
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
