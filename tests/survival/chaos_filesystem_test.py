"""The file system of the worlds: where it differs from the directory under it, and where not."""
from __future__ import annotations

import errno
import os
import shutil
import subprocess

import pytest

from tests import harness, needs
from tools.chaos import filesystem

LONG, SHORT = 1000.0, 0.05  # seconds that a mount keeps what it knows


@pytest.fixture
def mounted(start, tmp_path):
  """Mounts a directory several times, as `mounted(count, keeps, renames)`."""
  made = []

  def mount(count, keeps=0.0, renames=True):
    mounts = [tmp_path / ("%g-%d" % (keeps, index)) for index in range(count)]
    for each in [tmp_path / "below", *mounts]:
      each.mkdir(exist_ok=True)
    ready = tmp_path / ("%g is ready" % keeps)
    server = start("the file system", filesystem.serve, str(tmp_path / "below"),
                   [str(each) for each in mounts], keeps, renames, str(ready))
    harness.wait_until(lambda: ready.exists() or not server.is_running, what="its mounts")
    if not ready.exists():
      needs.skip("FUSE", server.last_line)
    made.extend(mounts)
    return mounts

  yield mount
  for each in made:
    subprocess.run(["umount", "--lazy", str(each)], check=True)


def replace(path, text):
  """Replaces a file as tf1ps does."""
  part = path.with_name("part")
  part.write_text(text)
  part.replace(path)


@pytest.mark.any_tensorflow
def test_it_holds_what_a_directory_holds(mounted, tmp_path):
  at, = mounted(1)
  content = os.urandom(300000)
  (at / "sub").mkdir()
  (at / "sub" / "data").write_bytes(content)
  with open(str(at / "sub" / "data"), "r+b") as file:
    file.seek(5)
    file.write(b"tf1ps")
    file.truncate(200000)
  with open(str(at / "sub" / "data"), "ab") as file:
    file.write(b"end")
  expected = content[:5] + b"tf1ps" + content[10:200000] + b"end"
  assert (tmp_path / "below" / "sub" / "data").read_bytes() == expected
  assert (at / "sub" / "data").read_bytes() == expected
  names = {"file %d" % index for index in range(400)}
  for name in names:
    (at / "sub" / name).write_text("")
  assert set(os.listdir(str(at / "sub"))) == names | {"data"}
  replace(at / "sub" / "file 1", "one")
  assert (at / "sub" / "file 1").read_text() == "one"
  assert not (at / "sub" / "part").exists()
  with pytest.raises(FileExistsError):
    (at / "sub").mkdir()
  with pytest.raises(FileNotFoundError):
    (at / "none").read_text()
  shutil.rmtree(str(at / "sub"))
  assert os.listdir(str(tmp_path / "below")) == []


@pytest.mark.any_tensorflow
def test_a_mount_keeps_what_it_knows_and_another_mount_changes(mounted, tmp_path):
  writer, reader = mounted(2, LONG)
  brief, = mounted(1, SHORT)
  (writer / "status").write_text("old")
  assert (reader / "status").read_text() == (brief / "status").read_text() == "old"
  assert not (reader / "later").exists() and not (brief / "later").exists()
  replace(writer / "status", "newer")
  (writer / "later").write_text("here")
  assert (writer / "status").read_text() == "newer"
  assert (reader / "status").read_text() == "old"
  assert not (reader / "later").exists() and "later" in os.listdir(str(reader))
  harness.wait_until(lambda: (brief / "status").read_text() == "newer", what="the new file")
  harness.wait_until((brief / "later").exists, what="the new name")
  replace(reader / "status", "mine")
  assert (reader / "status").read_text() == (tmp_path / "below" / "status").read_text() == "mine"


@pytest.mark.any_tensorflow
def test_without_rename_a_file_stays_under_its_name(mounted):
  at, = mounted(1, renames=False)
  with pytest.raises(OSError) as raised:
    replace(at / "status", "new")
  assert raised.value.errno == errno.ENOSYS
  assert os.listdir(str(at)) == ["part"]
