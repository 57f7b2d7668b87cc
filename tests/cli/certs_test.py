from __future__ import annotations

import pytest

from tf1ps.cli import certs
from tf1ps.links import Identity

pytestmark = pytest.mark.any_tensorflow


def test_certificates_for_each_host_and_one_for_all(tmp_path, capsys):
  folder = str(tmp_path / "certs")
  assert certs.run(["--dir=" + folder, "10.0.0.1", "ps.job", "--days=30"]) == 0
  assert certs.run(["--dir=" + folder, "--one", "a.job", "b.job"]) == 0
  assert capsys.readouterr().out.splitlines() == [
    "--tls_dir=%s/10.0.0.1 for 10.0.0.1, valid for 30 days" % folder,
    "--tls_dir=%s/ps.job for ps.job, valid for 30 days" % folder,
    "%s/authority has the key of the authority: keep it away from the job's machines. Whoever has "
    "it can join the job." % folder,
    "--tls_dir=%s/a.job for a.job, b.job, valid for 365 days" % folder,
    "%s/authority has the key of the authority: keep it away from the job's machines. Whoever has "
    "it can join the job." % folder]
  Identity(folder + "/a.job").check("b.job")


@pytest.mark.parametrize("argv, code, text", [
  (["10.0.0.1"], 2, "--dir"), (["--dir=x"], 2, "HOST"), (["--dir=x", "--dys=3", "a"], 2, "--dys"),
  (["--dir=x", "a:2222"], 1,
   "'a:2222' is not a host: give a name or an IP address, without a port"),
  (["--dir=x", "a", "--days=99999999"], 1, "days must be above 0 and at most 36500, got 99999999"),
  (["--dir=x", "a", "--days=0"], 1, "days must be above 0 and at most 36500, got 0.0")])
def test_what_is_refused(tmp_path, monkeypatch, capsys, argv, code, text):
  monkeypatch.chdir(tmp_path)
  assert certs.run(argv) == code
  assert text in capsys.readouterr().err
  assert not list(tmp_path.iterdir())


def test_help_and_version(capsys):
  assert certs.run(["--help"]) == 0 and certs.run(["--version"]) == 0
  assert "--tls_dir" in capsys.readouterr().out
