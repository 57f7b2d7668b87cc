"""--tls_dir on the command lines of the programs; see tests/end_to_end/links_test.py for jobs."""
from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli import commands
from tf1ps.cli import links
from tf1ps.cluster import Cluster
from tf1ps.launch import TLS_VARIABLE
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
  # Only root may enter the links beside threads.
  env = {} if name == "tf1ps-local" else {TLS_VARIABLE: folder}
  code, lines = commands.run(start, name, "--tls_dir=" + folder, *argv, **env)
  assert code == 1
  assert lines[-1] == (
    "%s: %s/cert.pem does not name %s, the host of this task in the cluster: it names 10.0.0.9, "
    "ps.job. Make a certificate for this host with tf1ps-certs." % (name, folder, host))


def test_a_sidecar_gets_the_hosts_of_the_job(monkeypatch):
  cluster = Cluster({"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "a:2", 1: "[::1]:2"}}, "ps", 1)
  got = []
  monkeypatch.setattr(links.links, "is_inside", lambda: True)
  monkeypatch.setattr(links.links, "on_lost", lambda leave: None)
  monkeypatch.setattr(links.links, "listen", lambda *place, hosts: got.append((place, hosts)))
  links.open_port(cluster, on_lost=None)
  assert got == [(("b", 1), ["::1", "a", "b"])]


def test_the_flag_on_a_command_line_and_in_a_file(tmp_path):
  (tmp_path / "flags").write_text("--tls_dir=b\n")
  for argv, folder in ((["--tls_dir=a"], "a"), (["-tls_dir", "a", "--x"], "a"), (["--x=--y"], ""),
                       (["--flagfile=%s" % (tmp_path / "flags")], "b"),
                       (["--flagfile=/absent"], ""), (["--tls_dir=a", "--tls_dir=b"], "b")):
    assert links.find_folder(argv) == folder


@pytest.mark.parametrize("name", ["ps", "worker", "reset", "status", "top", "local"])
def test_grpc_and_tensorflow_are_imported_after_their_variables_are_set(name):
  code = "import sys, tf1ps.cli.%s; sys.exit('grpc' in sys.modules or 'tensorflow' in sys.modules)"
  code %= name
  subprocess.run([sys.executable, "-c", code], cwd=str(commands.ROOT), check=True)
