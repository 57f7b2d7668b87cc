from __future__ import annotations

import os
import sysconfig

import pytest

from tf1ps.compat import installed_files

pytestmark = pytest.mark.any_tensorflow


@pytest.mark.parametrize("path, is_installed", [
    ("/home/me/train.py", False), ("train.py", False),
    ("/opt/other/lib/python3.7/site-packages/tensorflow/ops.py", True),
    ("/usr/lib/python3/dist-packages/six.py", True),
    (os.path.join(sysconfig.get_paths()["stdlib"], "os.py"), True)])
def test_packages_of_any_environment_are_installed(path, is_installed):
  """PYTHONPATH and .pth files lead to packages of another environment than this Python's."""
  assert installed_files.is_installed_file(path) is is_installed


def test_packages_that_were_installed_into_a_folder_of_their_own(tmp_path, monkeypatch):
  for name in ["numpy/__init__", "numpy/core/a, b", "six", "train", "lib/six"]:
    path = tmp_path / (name + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
  for name, text in (
      ("numpy-1.26.dist-info/RECORD",
       "../../bin/f2py,sha256=1,2\r\nnumpy/__init__.py,,\r\n\"numpy/core/a, b.py\",,\r\n"),
      ("six.egg-info/installed-files.txt", "../six.py\ntop_level.txt\n"),
      ("trainer.egg-info/SOURCES.txt", "train.py\n"), ("bad.dist-info/RECORD", "\0")):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(text)
  (tmp_path / "unreadable.dist-info" / "RECORD").mkdir(parents=True)
  monkeypatch.syspath_prepend(str(tmp_path))
  assert {str(path.relative_to(tmp_path)): installed_files.is_installed_file(str(path))
          for path in tmp_path.glob("**/*.py")} == {
    "numpy/__init__.py": True, "numpy/core/a, b.py": True, "six.py": True, "train.py": False,
    "lib/six.py": False}
