from __future__ import annotations

import importlib
import os
import subprocess
import sys
import traceback
import types

import pytest

from tf1ps.runner import loader, python2


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """A program's folder, on the path; its modules are forgotten again."""
  monkeypatch.setattr(sys, "path", [str(tmp_path)] + sys.path)
  monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
  # A stand-in for what answers, so that these tests need no TensorFlow.
  monkeypatch.setitem(sys.modules, "tf1ps.v1", types.SimpleNamespace(__name__="the answer"))
  monkeypatch.setattr("tf1ps.v1", sys.modules["tf1ps.v1"], raising=False)
  before = set(sys.modules)
  yield tmp_path
  for name in set(sys.modules) - before:
    del sys.modules[name]


def write(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  return str(path)


def test_own_modules_get_the_answer_and_installed_ones_do_not(folder):
  for name in "own", "pack/__init__", "pack/net", "bare/net", "site-packages/installed_one":
    write(folder / (name + ".py"), "import tensorflow as tf\nname = tf.__name__")
  sys.path.append(str(folder / "site-packages"))
  sys.modules["tensorflow"] = sys.modules.get("tensorflow", types.SimpleNamespace(
    __name__="tensorflow"))
  with loader.answer_imports(loader.Compiler()):
    names = {name: importlib.import_module(name).name
             for name in ("own", "pack", "pack.net", "bare.net", "installed_one")}
  assert names.pop("installed_one") == "tensorflow"
  assert set(names.values()) == {"the answer"}
  assert not list(folder.glob("**/*.pyc")) or not [
    path for path in folder.glob("**/*.pyc") if "installed_one" not in path.name]
  assert not any(isinstance(each, loader._Finder) for each in sys.meta_path)


def test_bytecode_that_python_wrote_is_not_used(folder, monkeypatch):
  monkeypatch.setattr(sys, "dont_write_bytecode", False)
  write(folder / "seen.py", "try:\n  import tensorflow_absent\nexcept ImportError: pass\n"
        "def late():\n  import tensorflow\n  return tensorflow.__name__")
  importlib.import_module("seen")
  assert list(folder.glob("**/seen*.pyc"))
  del sys.modules["seen"]
  with loader.answer_imports(loader.Compiler()):
    assert importlib.import_module("seen").late() == "the answer"


def test_the_program_is_main_and_its_traceback_shows_its_own_lines(folder):
  write(folder / "helper.py", "\n\ndef fail():\n  raise ValueError('mine')\n")
  path = write(folder / "train.py", """
import tensorflow as tf, sys
from helper import fail
assert sys.modules["__main__"].tf is tf and tf.__name__ == "the answer"
assert __name__ == "__main__" and __file__.endswith("train.py") and __package__ is None
fail()
""")
  compiler = loader.Compiler()
  with loader.answer_imports(compiler), pytest.raises(ValueError, match="mine") as caught:
    loader.run_code(compiler.compile_file(path), path)
  frames = traceback.extract_tb(caught.value.__traceback__)[-2:]
  assert [(frame.filename, frame.lineno, frame.line) for frame in frames] == [
    (path, 6, "fail()"), (str(folder / "helper.py"), 4, "raise ValueError('mine')")]


def test_a_module_runs_by_its_name(folder, capsys):
  write(folder / "pack" / "__init__.py", "")
  write(folder / "pack" / "near.py", "value = 3")
  for name in "train", "__main__":
    write(folder / "pack" / (name + ".py"), "from . import near\nprint(__spec__.name, near.value)")
  compiler = loader.Compiler()
  with loader.answer_imports(compiler):
    for name in "pack.train", "pack":
      code, spec = loader.code_of_module(name, compiler)
      loader.run_code(code, spec.origin, spec)
    for name in "absent", "pack.absent", "json.absent":
      with pytest.raises(loader.ProgramNotFoundError, match="the module %s does not exist" % name):
        loader.code_of_module(name, compiler)
    write(folder / "pack" / "__init__.py", "import absent_library")
    del sys.modules["pack"]
    with pytest.raises(ModuleNotFoundError, match="absent_library"):
      loader.code_of_module("pack.train", compiler)
  assert capsys.readouterr().out == "pack.train 3\npack.__main__ 3\n"


def test_python_2_keeps_its_lines(folder, capsys):
  path = write(folder / "old.py", """
def double((a, b)):  # becomes two lines
  return 2 * a, 2 * b

for i in xrange(1):
  print double((i, 1))[1],
  print 7 / 2
import tensorflow
raise ValueError, "mine"
""")
  remarks = []
  compiler = loader.Compiler(python2.Python2(), lambda *remark: remarks.append(remark))
  with pytest.raises(ValueError, match="mine") as caught:
    loader.run_code(compiler.compile_file(path), path)
  assert capsys.readouterr().out == "2 3.5\n"
  assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 9
  assert [(file, line) for file, line, _ in remarks] == [(path, 7)]
  parsed = compiler.parse((folder / "old.py").read_bytes(), path)
  assert [each.line for each in parsed.replaced] == [2, 3, 5, 6, 7, 8, 9]
  assert (folder / "old.py").read_text().startswith("\ndef double((a, b))")


def test_future_imports_of_the_loader_are_not_the_programs(folder):
  path = write(folder / "train.py", "def f(x: 1): pass\nassert f.__annotations__ == {'x': 1}")
  loader.run_code(loader.Compiler().compile_file(path), path)


@pytest.mark.parametrize("converter", [None, python2.Python2()])
def test_what_cannot_be_parsed_names_its_place(folder, converter):
  for name, data, line in (("a.py", b"x = 1\ny = = 2\n", 2), ("b.py", b"x = '\xe4'\n", None)):
    (folder / name).write_bytes(data)
    with pytest.raises(SyntaxError) as caught:
      loader.Compiler(converter).compile_file(str(folder / name))
    assert caught.value.filename == str(folder / name)
    assert line is None or caught.value.lineno == line


def test_a_declared_encoding_is_kept(folder):
  (folder / "train.py").write_bytes(
    "# coding: latin-1\nassert len('ä') == 1\nassert xrange(3)\n".encode("latin-1"))
  compiler = loader.Compiler(python2.Python2())
  loader.run_code(compiler.compile_file(str(folder / "train.py")), "train.py")


@pytest.mark.slow
@pytest.mark.any_tensorflow
def test_tensorflow_is_quiet_whatever_part_is_imported_first(tmp_path):
  (tmp_path / "program.py").write_text(
    "from tensorflow.python.platform import gfile\nprint(gfile.Exists('/'))\n")
  environment = dict(os.environ)
  environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
  done = subprocess.run(
    [sys.executable, "-c", "from tf1ps.cli import run; run.run(['program.py'])"],
    cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True,
    env=dict(environment, PYTHONPATH=os.getcwd()))
  assert (done.stdout, done.stderr) == (b"True\n", b"")
