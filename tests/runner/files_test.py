from __future__ import annotations

import ast
import os
import pathlib
import sysconfig

import pytest

from tf1ps.runner import files


def write(folder, sources):
  for name, text in sources.items():
    path = folder / (name + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("path, is_own", [
    ("/home/me/train.py", True), ("train.py", True), ("/home/me/lib/net.py", True),
    ("/home/me/venv/lib/python3.7/site-packages/tf_slim/nets.py", False),
    ("/usr/lib/python3/dist-packages/six.py", False),
    (os.path.join(sysconfig.get_paths()["stdlib"], "os.py"), False),
    (os.path.join(os.path.dirname(files.__file__), "..", "version.py"), False),
    ("/home/me/train.so", False)])
def test_which_files_are_the_programs_own(path, is_own):
  assert files.is_own_file(path) is is_own


def test_the_own_files_that_a_program_imports(tmp_path, monkeypatch):
  write(tmp_path, {
    "scripts/train": "import os, numpy, models.net\nfrom near import f", "scripts/unused": "",
    "scripts/near": "raise SystemExit  # is not run\ndef late(): import far",
    "lib/models/__init__": "", "lib/models/net": "from . import layers\nimport near",
    "lib/models/layers": "from .deep.block import x", "lib/models/deep/block": "from .. import net",
    "lib/far": "from models import other, absent", "lib/models/other": "1 +"})
  monkeypatch.syspath_prepend(str(tmp_path / "lib"))
  monkeypatch.syspath_prepend(str(tmp_path / "scripts"))

  def parse(path):
    try:
      return ast.parse(pathlib.Path(path).read_text())
    except SyntaxError:
      return None

  found = files.find_own_files([str(tmp_path / "scripts" / "train.py")], parse)
  assert [os.path.relpath(path, str(tmp_path)) for path in found] == [
    "scripts/train.py", "lib/models/__init__.py", "lib/models/net.py", "scripts/near.py",
    "lib/models/layers.py", "lib/far.py", "lib/models/deep/block.py", "lib/models/other.py"]


def test_the_files_of_a_module(tmp_path, monkeypatch):
  write(tmp_path, dict.fromkeys(["pack/__init__", "pack/sub/__main__", "pack/train", "alone"], ""))
  monkeypatch.syspath_prepend(str(tmp_path))
  for name, expected in (("pack.train", ["pack/__init__.py", "pack/train.py"]),
                         ("pack.sub", ["pack/__init__.py", "pack/sub/__main__.py"]),
                         ("alone", ["alone.py"]), ("absent", [])):
    found = files.files_of_module(name)
    assert [os.path.relpath(path, str(tmp_path)) for path in found] == expected
