from __future__ import annotations

import pytest

from tf1ps.cli import doctor

pytestmark = pytest.mark.any_tensorflow
ADDS = "import tensorflow.compat.v1 as tf\n\nprint(tf.sub(3, 2))\n"


def test_findings_of_a_folder(tmp_path, capsys):
  (tmp_path / "sub").mkdir()
  (tmp_path / ".hidden").mkdir()
  (tmp_path / "sub" / "ps.py").write_text(ADDS)
  (tmp_path / ".hidden" / "ps.py").write_text(ADDS)
  (tmp_path / "clean.py").write_text("x = 1\n")
  assert doctor.run([str(tmp_path)]) == 1
  out, err = capsys.readouterr()
  line, = out.splitlines()
  assert line == (
    "%s/sub/ps.py:3:7: gone: TensorFlow has no tf.sub since 1.0: it is called tf.subtract "
    "[name-before-1.0]" % tmp_path)
  assert not err


def test_a_clean_program(tmp_path, capsys):
  (tmp_path / "clean.py").write_text("x = 1\n")
  assert doctor.run([str(tmp_path / "clean.py")]) == 0
  assert capsys.readouterr() == ("", "")


def test_python2(tmp_path, capsys):
  (tmp_path / "old.py").write_text(ADDS + "print 'over'\n")
  assert doctor.run([str(tmp_path / "old.py")]) == 1
  out = capsys.readouterr().out
  assert "old.py:1:1: gone: Python 2" in out and "old.py:3:1: gone: TensorFlow has no tf.sub" in out


def test_files_that_cannot_be_read(tmp_path, capsys):
  (tmp_path / "broken.py").write_text("x = (\n")
  assert doctor.run([str(tmp_path / "broken.py"), str(tmp_path / "absent.py")]) == 2
  err = capsys.readouterr().err
  assert "broken.py:1: " in err and "absent.py: No such file or directory" in err


def test_a_wrong_flag(capsys):
  assert doctor.run(["--frmat=json", "x.py"]) == 2
  assert "--frmat" in capsys.readouterr().err
