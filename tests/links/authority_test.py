from __future__ import annotations

import os
import stat
import sys

import pytest

from tf1ps.links import AuthorityError, Identity, IdentityError, make_certificates

pytestmark = pytest.mark.any_tensorflow


def test_a_certificate_for_each_host_or_one_for_all(tmp_path):
  folder = str(tmp_path / "certs")
  first, second = make_certificates(folder, [["10.0.0.1"], ["ps-0.job"]], 1)
  one, = make_certificates(folder, [["fd00::1", "10.0.0.2", "worker-0.job"]], 1)
  assert [os.path.basename(each) for each in (first, second, one)] == [
    "10.0.0.1", "ps-0.job", "fd00__1"]
  Identity(first).check("10.0.0.1")
  Identity(second).check("ps-0.job")
  for host in ("fd00::1", "10.0.0.2", "worker-0.job"):
    Identity(one).check(host)
  with pytest.raises(IdentityError, match=r"does not name 10.0.0.2, .*: it names 10.0.0.1\. Make"):
    Identity(first).check("10.0.0.2")


def test_a_new_certificate_names_all_hosts_of_the_old_one(tmp_path):
  folder = str(tmp_path)
  made, = make_certificates(folder, [["a", "10.0.0.2"]], 1)
  old = (tmp_path / "a" / "cert.pem").read_bytes()
  with pytest.raises(AuthorityError, match=r"/a names also 10\.0\.0\.2: give all its hosts"):
    make_certificates(folder, [["b"], ["a"]], 1)
  assert (tmp_path / "a" / "cert.pem").read_bytes() == old and not (tmp_path / "b").exists()
  make_certificates(folder, [["a", "b", "10.0.0.2"]], 1)
  Identity(made).check("b")


def test_all_are_of_one_authority(tmp_path):
  made = make_certificates(str(tmp_path), [["a"]], 1) + make_certificates(str(tmp_path), [["b"]], 1)
  texts = {(tmp_path / name / "ca.pem").read_text() for name in ("a", "b", "authority")}
  assert len(made) == 2 and len(texts) == 1


def test_only_the_user_reads_keys(tmp_path):
  make_certificates(str(tmp_path), [["a"]], 1)
  for name in ("a", "authority"):
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / name / "key.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize("host", ["", "a:2222", "a b", "authority", "../a", "a/b", "*"])
def test_what_is_no_host(tmp_path, host):
  with pytest.raises(AuthorityError, match="is not a host: give a name or an IP address, without"):
    make_certificates(str(tmp_path), [[host]], 1)
  assert not list(tmp_path.iterdir())


def test_days_and_files_that_cannot_be(tmp_path):
  with pytest.raises(AuthorityError, match="days must be above 0 and at most 36500, got 0"):
    make_certificates(str(tmp_path), [["a"]], 0)
  (tmp_path / "file").write_text("")
  with pytest.raises(AuthorityError, match="file/authority: Not a directory"):
    make_certificates(str(tmp_path / "file"), [["a"]], 1)
  (tmp_path / "authority").mkdir()
  (tmp_path / "authority" / "ca.pem").write_text("x")
  (tmp_path / "authority" / "key.pem").write_text("x")
  (tmp_path / "authority" / "key.pem").chmod(0o640)
  with pytest.raises(AuthorityError, match="authority/key.pem has mode 0640: more users than its"):
    make_certificates(str(tmp_path), [["a"]], 1)
  (tmp_path / "authority" / "key.pem").chmod(0o600)
  with pytest.raises(AuthorityError, match="the authority in .* cannot be used"):
    make_certificates(str(tmp_path), [["a"]], 1)


def test_without_cryptography(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "cryptography", None)
  with pytest.raises(AuthorityError, match=r'pip install "tf1ps\[tls\]"'):
    make_certificates(str(tmp_path), [["a"]], 1)
