from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tf1ps.cli import doctor
from tf1ps.doctor import RULES

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
  assert out.splitlines() == [
    "%s/sub/ps.py:3:7: gone: TensorFlow has no tf.sub since 1.0: it is called tf.subtract "
    "[name-before-1.0]" % tmp_path, "",
    "name-before-1.0: Write today's name. See `tf1ps docs legacy#from-before-tensorflow-10`.",
    "1 finding in 1 of 2 files. `import tf1ps.v1 as tf`, or tf1ps-run, fixes all that tf1ps-doctor "
    "found."]
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
  assert doctor.run([str(tmp_path / "broken.py"), str(tmp_path / "absent.py"),
                     str(tmp_path / "brokn.py")]) == 2
  err = capsys.readouterr().err
  assert "broken.py:1: " in err and "absent.py: No such file or directory\n" in err
  assert "brokn.py: No such file or directory; did you mean %s/broken.py?\n" % tmp_path in err


def test_a_wrong_flag(capsys):
  assert doctor.run(["--frmat=json", "x.py"]) == 2
  assert "--frmat" in capsys.readouterr().err


def test_fix_writes_the_file_and_lists_what_is_left(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "train.py").write_bytes(
    b"# -*- coding: latin-1 -*-\r\nimport tensorflow as tf  # \xe9\r\ntf.sub(3, 2)\r\n"
    b"tf.contrib.ffmpeg.decode(x)\r\n")
  assert doctor.run(["--fix", "train.py"]) == 1
  out, err = capsys.readouterr()
  assert out.split("\n")[:10] == [
    "--- a/train.py", "+++ b/train.py", "@@ -1,4 +1,4 @@", " # -*- coding: latin-1 -*-",
    "-import tensorflow as tf  # \xe9", "-tf.sub(3, 2)", "+import tf1ps.v1 as tf  # \xe9",
    "+tf.subtract(3, 2)", " tf.contrib.ffmpeg.decode(x)",
    "train.py:4:1: gone: TensorFlow 2 has no tf.contrib.ffmpeg.decode, nor has tf1ps.v1: use the "
    "package tensorflow-io [contrib-without-heir]"]
  assert (tmp_path / "train.py").read_bytes() == (
    b"# -*- coding: latin-1 -*-\r\nimport tf1ps.v1 as tf  # \xe9\r\ntf.subtract(3, 2)\r\n"
    b"tf.contrib.ffmpeg.decode(x)\r\n")


def test_diff_changes_nothing(tmp_path, capsys):
  (tmp_path / "train.py").write_text(ADDS)
  assert doctor.run(["--diff", str(tmp_path)]) == 1
  assert "+import tf1ps.v1 as tf\n" in capsys.readouterr().out
  assert (tmp_path / "train.py").read_text() == ADDS
  (tmp_path / "train.py").write_text("import os\n")
  assert doctor.run(["--diff", str(tmp_path)]) == 0
  assert capsys.readouterr() == ("", "")


def test_what_is_left_after_a_fix_may_be_nothing(tmp_path, capsys):
  (tmp_path / "train.py").write_text(ADDS)
  assert doctor.run(["--fix", str(tmp_path)]) == 0
  assert "[" not in capsys.readouterr().out


def test_json(tmp_path, capsys):
  (tmp_path / "train.py").write_text(ADDS)
  assert doctor.run(["--format=json", str(tmp_path / "train.py")]) == 1
  assert json.loads(capsys.readouterr().out) == [{
    "path": str(tmp_path / "train.py"), "line": 3, "column": 7, "rule": "name-before-1.0",
    "kind": "gone", "message": "TensorFlow has no tf.sub since 1.0: it is called tf.subtract",
    "advice": "Write today's name.", "page": "tf1ps docs legacy#from-before-tensorflow-10",
    "is_fixed_by_tf1ps": True}]
  (tmp_path / "train.py").write_text("import os\n")
  assert doctor.run(["--format=json", str(tmp_path / "train.py")]) == 0
  assert json.loads(capsys.readouterr().out) == []


def test_sarif(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "a b.py").write_text(ADDS)
  assert doctor.run(["--format=sarif", "a b.py"]) == 1
  log = json.loads(capsys.readouterr().out)
  assert log["version"] == "2.1.0"
  run, = log["runs"]
  rules = run["tool"]["driver"]["rules"]
  assert [rule["id"] for rule in rules] == [rule.name for rule in RULES]
  result, = run["results"]
  assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "name-before-1.0"
  assert result["level"] == "error"
  assert result["locations"] == [{"physicalLocation": {
    "artifactLocation": {"uri": "a%20b.py"}, "region": {"startLine": 3, "startColumn": 7}}}]


@pytest.mark.parametrize("given", [".", "./", "./sub/..//.", "sub", "./sub//ps.py"])
def test_paths_are_plain(tmp_path, monkeypatch, capsys, given):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "sub").mkdir()
  (tmp_path / "sub" / "ps.py").write_text(ADDS)
  assert doctor.run(["--format=json", given]) == 1
  finding, = json.loads(capsys.readouterr().out)
  is_up = ".." in given  # `sub` may be a link
  assert finding["path"] == (os.path.join(given, "sub", "ps.py") if is_up else "sub/ps.py")
  assert doctor.run(["--diff", given]) == 1
  assert capsys.readouterr().out.startswith("--- a/%s\n" % finding["path"])


def test_what_the_one_import_leaves_comes_first(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "train.py").write_text(ADDS + "tf.contrib.ffmpeg.decode(x)\n")
  assert doctor.run(["train.py"]) == 1
  lines = capsys.readouterr().out.split("\n")
  assert [line.partition(" ")[0] for line in lines] == [
    "train.py:4:1:", "", "`import", "train.py:3:7:", "", "contrib-without-heir:",
    "name-before-1.0:", "2", ""]
  assert lines[2] == "`import tf1ps.v1 as tf`, or tf1ps-run, fixes these:"


def test_the_own_files_that_a_file_imports_are_read_as_well(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "sub" / "nets").mkdir(parents=True)
  (tmp_path / "sub" / "train.py").write_text("import near, json, absent\nfrom nets import net\n")
  (tmp_path / "sub" / "near.py").write_text("import near, train\nprint 'near'\n")
  (tmp_path / "sub" / "nets" / "net.py").write_text(ADDS)
  (tmp_path / "sub" / "unused.py").write_text(ADDS)
  before = list(sys.path)
  for given, folder in ("sub/train.py", "sub"), (str(tmp_path / "sub" / "train.py"), None):
    assert doctor.run([given, given]) == 1
    lines = capsys.readouterr().out.split("\n")
    folder = folder or str(tmp_path / "sub")
    assert [line.partition(": ")[0] for line in lines if line.startswith(folder)] == [
      folder + "/near.py:1:1", folder + "/nets/net.py:3:7"]
    assert lines[-2].startswith("2 findings in 2 of 3 files.")
  assert sys.path == before
  assert doctor.run(["--diff", "sub/train.py"]) == 0


def test_many_findings_of_one_rule_take_three_lines(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "a.py").write_text(ADDS + "tf.sub(2, 1)\n" * 2)
  (tmp_path / "b.py").write_text(ADDS + "tf.contrib.ffmpeg.decode(x)\n")
  assert doctor.run(["."]) == 1
  lines = capsys.readouterr().out.split("\n")
  assert lines[0].startswith("b.py:4:1: gone: TensorFlow 2 has no tf.contrib.ffmpeg.decode")
  assert lines[5:7] == ["... 2 more [name-before-1.0]: a.py:5; b.py:3", ""]
  assert lines[3].startswith("a.py:3:7: ") and lines[4].startswith("a.py:4:1: ")


def test_without_fissix_python2_cannot_be_read(tmp_path, monkeypatch, capsys):
  doctor._python2.cache_clear()
  monkeypatch.setitem(sys.modules, "fissix.refactor", None)
  (tmp_path / "old.py").write_text("print 'over'\n")
  assert doctor.run([str(tmp_path / "old.py")]) == 2
  assert "old.py: it is not Python 3. If it is Python 2" in capsys.readouterr().err


@pytest.mark.parametrize("argv, said", [
  (["--fix", "--diff"], "--diff shows what --fix changes: leave one out"),
  (["--fix", "--format=json"], "leave --format=json out")])
def test_flags_that_do_not_go_together(tmp_path, capsys, argv, said):
  assert doctor.run([*argv, str(tmp_path)]) == 2
  assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_is_gone(tmp_path):
  (tmp_path / "train.py").write_text(ADDS)
  reader, writer = os.pipe()
  os.close(reader)
  try:
    ended = subprocess.run(
      [sys.executable, "-m", "tf1ps", "doctor", "--format=json", str(tmp_path)],
      cwd=str(ROOT), stdout=writer, stderr=subprocess.PIPE)
  finally:
    os.close(writer)
  assert (ended.returncode, ended.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.slow
def test_two_hundred_files_take_seconds(tmp_path):
  programs = sorted((ROOT / "tests" / "legacy" / "programs").glob("*.py"))
  for number in range(200):
    (tmp_path / ("%d.py" % number)).write_text(programs[number % len(programs)].read_text())
  begin = time.process_time()
  assert doctor.run([str(tmp_path)]) == 1
  assert time.process_time() - begin < 20  # seconds; 3 on an idle machine
