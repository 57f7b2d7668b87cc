from __future__ import annotations

import datetime
import os
import re
import shutil

import pytest

from tf1ps.links import Identity, IdentityError, authority, make_certificates

pytestmark = pytest.mark.any_tensorflow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """A folder with the certificates of two hosts."""
  folder = tmp_path_factory.mktemp("made")
  make_certificates(str(folder), [["a"], ["b"]], 1)
  return folder


@pytest.fixture
def mine(made, tmp_path):
  """A copy of a's folder, to be broken."""
  shutil.copytree(str(made / "a"), str(tmp_path / "mine"))
  return tmp_path / "mine"


def test_a_good_folder(mine):
  assert Identity(str(mine)).check().endswith("GMT")


@pytest.mark.parametrize("name", ["cert.pem", "key.pem", "ca.pem"])
def test_a_missing_file(mine, name):
  (mine / name).unlink()
  with pytest.raises(IdentityError, match="has no %s: it needs cert.pem, key.pem and" % name):
    Identity(str(mine)).check()


@pytest.mark.parametrize("name", ["cert.pem", "key.pem", "ca.pem"])
@pytest.mark.parametrize("content", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_file_of_another_kind(mine, name, content):
  (mine / name).write_text(content)
  with pytest.raises(IdentityError, match=r"%s .*in PEM format \(" % name):
    Identity(str(mine)).check()


def test_a_file_that_is_a_folder(mine):
  (mine / "key.pem").unlink()
  (mine / "key.pem").mkdir()
  with pytest.raises(IdentityError, match="key.pem cannot be read: Is a directory"):
    Identity(str(mine)).check()


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o640, 0o620, 0o644])
def test_a_key_that_others_can_use(mine, mode):
  key = mine / "key.pem"
  key.chmod(mode)
  identity = Identity(str(mine))
  for use in (identity.check, identity.contexts):
    with pytest.raises(IdentityError) as raised:
      use()
    assert str(raised.value) == (
      "%s has mode %04o: more users than its owner can read or change it. Run: chmod 600 %s" % (
        key, mode, key))
  key.chmod(0o400)
  identity.check()


@pytest.mark.parametrize("mode, is_good", [(0o440, True), (0o460, False), (0o444, False)])
def test_a_key_of_another_user(mine, mode, is_good, monkeypatch):
  """Its group may read it: so Kubernetes gives a secret of root's to a task."""
  (mine / "key.pem").chmod(mode)
  user = os.geteuid()
  monkeypatch.setattr(os, "geteuid", lambda: user + 1)
  if is_good:
    Identity(str(mine)).check()
  else:
    with pytest.raises(IdentityError, match="key.pem has mode 04[46][04]: more users than its"):
      Identity(str(mine)).check()


def test_another_key(mine, made):
  shutil.copy(str(made / "b" / "key.pem"), str(mine))
  with pytest.raises(IdentityError, match="key.pem is not the key of .*/cert.pem"):
    Identity(str(mine)).check()


def test_another_authority(mine, tmp_path):
  make_certificates(str(tmp_path / "other"), [["a"]], 1)
  shutil.copy(str(tmp_path / "other" / "a" / "ca.pem"), str(mine))
  with pytest.raises(IdentityError, match=r"cert.pem is not signed by the authority in ca.pem \("):
    Identity(str(mine)).check()


@pytest.mark.parametrize("days, problem", [
  (-1, "has expired: make another certificate"), (1, "is not valid yet: compare the clocks")])
def test_the_wrong_time(tmp_path, monkeypatch, days, problem):
  monkeypatch.setattr(authority, "_BACKDATED", datetime.timedelta(days=-days, minutes=-days))
  if days > 0:
    make_certificates(str(tmp_path), [["a"]], 2)
  else:
    monkeypatch.setattr(authority, "_BACKDATED", datetime.timedelta(days=2))
    make_certificates(str(tmp_path), [["b"]], 1)
    library = authority._Library()
    library.issue(str(tmp_path / "a"), ["a"], -1, library.authority(str(tmp_path / "authority")))
  with pytest.raises(IdentityError, match=problem if days < 0 else "is not valid yet"):
    Identity(str(tmp_path / "a")).check()


def test_a_certificate_that_ends_soon(tmp_path, monkeypatch, mine):
  folders = make_certificates(str(tmp_path), [["a"], ["b"]], 8)
  assert Identity(folders[0]).warning() is None and Identity(str(mine)).warning() is None
  library = authority._Library()
  issuer = library.authority(str(tmp_path / "authority"))
  library.issue(folders[1], ["b"], 0.05, issuer)
  assert Identity(folders[1]).warning() is None  # it lives for so short a time
  monkeypatch.setattr(authority, "_BACKDATED", datetime.timedelta(days=1))
  library.issue(folders[1], ["b"], 0.05, issuer)
  assert re.match(r".*/b/cert.pem ends on .* GMT, in 1.2 hours: replace it",
                  Identity(folders[1]).warning())


def test_a_key_with_a_passphrase(mine):
  from cryptography.hazmat.primitives import serialization

  key = serialization.load_pem_private_key((mine / "key.pem").read_bytes(), None)
  (mine / "key.pem").write_bytes(key.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
    serialization.BestAvailableEncryption(b"secret")))
  with pytest.raises(IdentityError, match="without a passphrase, in PEM format"):
    Identity(str(mine)).check()


def test_changed_files_are_read_again(mine, made):
  identity = Identity(str(mine))
  before = identity.contexts()
  assert identity.contexts() is before
  for name in ("key.pem", "cert.pem"):
    shutil.copy(str(made / "b" / name), str(mine / (name + ".new")))
    os.replace(str(mine / (name + ".new")), str(mine / name))
  assert identity.contexts() is not before
  (mine / "key.pem").unlink()
  with pytest.raises(IdentityError, match="has no key.pem"):
    identity.contexts()
  assert identity.last_contexts is not None
