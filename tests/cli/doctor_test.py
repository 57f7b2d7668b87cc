from __future__ import annotations

import pytest

from tf1ps.cli import doctor

pytestmark = pytest.mark.any_tensorflow
JOINS = "import tensorflow as tf\nserver = tf.train.Server({})\nserver.join()\n"


def test_findings_of_a_folder(tmp_path, capsys):
  (tmp_path / "sub").mkdir()
  (tmp_path / ".hidden").mkdir()
  (tmp_path / "sub" / "ps.py").write_text(JOINS)
  (tmp_path / ".hidden" / "ps.py").write_text(JOINS)
  (tmp_path / "clean.py").write_text("x = 1\n")
  assert doctor.run([str(tmp_path)]) == 1
  out, err = capsys.readouterr()
  line, = out.splitlines()
  assert line.startswith("%s/sub/ps.py:3:1: trap: `join` waits" % tmp_path)
  assert not err


def test_a_clean_program(tmp_path, capsys):
  (tmp_path / "clean.py").write_text("x = 1\n")
  assert doctor.run([str(tmp_path / "clean.py")]) == 0
  assert capsys.readouterr() == ("", "")


def test_python2(tmp_path, capsys):
  (tmp_path / "old.py").write_text(JOINS + "print 'over'\n")
  assert doctor.run([str(tmp_path / "old.py")]) == 1
  assert "old.py:3:1: trap" in capsys.readouterr().out


def test_files_that_cannot_be_read(tmp_path, capsys):
  (tmp_path / "broken.py").write_text("x = (\n")
  assert doctor.run([str(tmp_path / "broken.py"), str(tmp_path / "absent.py")]) == 2
  err = capsys.readouterr().err
  assert "broken.py:1: " in err and "absent.py: No such file or directory" in err


def test_a_wrong_flag(capsys):
  assert doctor.run(["--frmat=json", "x.py"]) == 2
  assert "--frmat" in capsys.readouterr().err
