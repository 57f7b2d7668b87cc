"""--tls_dir on the command lines of the programs; see tests/end_to_end/links_test.py for jobs."""
from __future__ import annotations

import pytest

from tests.cli import commands
from tf1ps.cli import links
from tf1ps.links import make_certificates

pytestmark = pytest.mark.any_tensorflow
HOSTS = ["--ps_hosts=10.0.0.1:2222", "--worker_hosts=10.0.0.2:2222"]


@pytest.mark.parametrize("name, argv", [
  ("tf1ps-ps", HOSTS), ("tf1ps-worker", [*HOSTS, commands.LINE]), ("tf1ps-status", HOSTS[:1]),
  ("tf1ps-reset", ["default", *HOSTS]), ("tf1ps-local", [commands.LINE])])
def test_a_folder_without_files(start, name, argv):
  code, lines = commands.run(start, name, "--tls_dir=/absent", *argv)
  assert code == 1
  assert lines[-1] == ("%s: --tls_dir=/absent has no cert.pem: it needs cert.pem, key.pem and "
                       "ca.pem, which tf1ps-certs makes" % name)


@pytest.mark.parametrize("name, argv, host", [
  ("tf1ps-ps", HOSTS, "10.0.0.1"), ("tf1ps-worker", [*HOSTS, commands.LINE], "10.0.0.2"),
  ("tf1ps-local", [commands.LINE], "127.0.0.1")])
def test_a_certificate_of_another_host(start, tmp_path, name, argv, host):
  folder, = make_certificates(str(tmp_path), [["10.0.0.9", "ps.job"]], 1)
  code, lines = commands.run(start, name, "--tls_dir=" + folder, *argv)
  assert code == 1
  assert lines[-1] == (
    "%s: %s/cert.pem does not name %s, the host of this task in the cluster: it names 10.0.0.9, "
    "ps.job. Make one with tf1ps-certs that does." % (name, folder, host))


def test_the_flag_on_a_command_line_and_in_a_file(tmp_path):
  (tmp_path / "flags").write_text("--tls_dir=b\n")
  for argv, folder in ((["--tls_dir=a"], "a"), (["-tls_dir", "a", "--x"], "a"), (["--x=--y"], ""),
                       (["--flagfile=%s" % (tmp_path / "flags")], "b"),
                       (["--flagfile=/absent"], ""), (["--tls_dir=a", "--tls_dir=b"], "b")):
    assert links.find_folder(argv) == folder
