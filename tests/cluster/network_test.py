from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests import cluster_tasks, harness, needs
from tf1ps.cluster import network
from tf1ps.cluster.description import Cluster, Task

TASKS = [Task("ps", 0, "a.example:2222"), Task("ps", 1, "10.0.0.7:1"), Task("worker", 0, "[::1]:5"),
         Task("worker", 1, "a.example:2223"), Task("local", 0, "localhost:0")]
HOSTS = "10.0.0.7,::1,a.example,localhost"


def changed(environ):
  """Returns what the environment becomes."""
  environ = dict(environ)
  network.bypass_proxy(TASKS, environ)
  return environ


@pytest.mark.parametrize("environ", [
    {}, {"no_proxy": "x"}, {"http_proxy": ""}, {"HTTP_PROXY": "http://p:1"}])
def test_nothing_changes_without_a_proxy(environ):
  assert changed(environ) == environ


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_the_hosts_of_the_cluster_are_excepted(name):
  assert changed({name: "http://p:1"}) == {name: "http://p:1", "no_proxy": HOSTS}


def test_what_is_excepted_already_stays():
  environ = {"http_proxy": "http://p:1", "no_proxy": "intra.example,a.example"}
  assert changed(environ)["no_proxy"] == "intra.example,a.example,10.0.0.7,::1,localhost"
  assert changed(changed(environ)) == changed(environ)


def test_grpc_reads_its_own_list_first():
  environ = {"http_proxy": "http://p:1", "no_grpc_proxy": "x", "no_proxy": ""}
  assert changed(environ) == {
      "http_proxy": "http://p:1", "no_grpc_proxy": "x," + HOSTS, "no_proxy": HOSTS}


def test_this_process_is_the_default(monkeypatch):
  monkeypatch.setenv("http_proxy", "http://p:1")
  monkeypatch.setenv("no_proxy", "x")
  network.bypass_proxy(TASKS)
  assert os.environ["no_proxy"] == "x," + HOSTS


def test_a_cluster_with_a_proxy_in_the_environment(start):
  env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": None}
  workers = {}
  for kind in ("stock", "ours"):
    jobs = {job: harness.addresses(1) for job in ("ps", "worker")}
    start(kind, cluster_tasks.exchange, kind, jobs, "ps", 60.0, **env).wait_for("up")
    limit = {"stock": 1.5, "ours": 60.0}[kind]
    workers[kind] = start(kind, cluster_tasks.exchange, kind, jobs, "worker", limit, **env)
  workers["ours"].wait_for("sum 5")
  workers["stock"].wait_for("hangs")  # the trap


# Who can connect.


JOBS = {"ps": {0: "127.0.0.1:2222"}, "worker": {0: "[::1]:2223"}}
ONE_INTERFACE = ("ip link add v0 type veth peer name v1 && ip addr add 10.1.2.3/24 dev v0 && "
                 "ip link set v0 up && ip link set v1 up && ip route add default via 10.1.2.4")
LOOPBACK_IS_THE_DEFAULT = "ip link set lo up && ip route add default dev lo"


def warning_in_a_namespace(setup):
  """Returns the warning in a network namespace of its own, or skips the test."""
  needs.unshare("-rn", "sh", "-c", setup)
  program = ("from tf1ps.cluster import description, network\n"
             "cluster = description.Cluster({'worker': {0: 'a:1'}}, 'worker', 0)\n"
             "print(network.exposure_warning(cluster))")
  return subprocess.run(
      ["unshare", "-rn", "sh", "-c", setup + ' && exec "$0" -c "$1"', sys.executable, program],
      stdout=subprocess.PIPE, timeout=60, check=True,
      cwd=str(pathlib.Path(__file__).parents[2])).stdout.decode().strip()


def test_tells_port_and_address(monkeypatch):
  monkeypatch.setattr(network, "outside_address", lambda: "10.0.0.7")
  assert network.exposure_warning(Cluster(JOBS, "ps", 0)) == (
      "/job:ps/task:0 listens on port 2222 of every interface, 10.0.0.7 too, as all TensorFlow "
      "servers do: anyone who can connect can run anything here. See `tf1ps docs "
      "security`.")
  assert "port 2223 of" in network.exposure_warning(Cluster(JOBS, "worker", 0))
  alone = Cluster({"worker": {0: "localhost:0"}}, "worker", 0)
  assert "a port that the system chooses of" in network.exposure_warning(alone)


def test_an_evaluator_has_no_server(monkeypatch):
  monkeypatch.setattr(network, "outside_address", lambda: "10.0.0.7")
  evaluator = Cluster(JOBS, "evaluator", 0, {0: "c:1"}, source="flags")
  assert network.exposure_warning(evaluator) is None


@pytest.mark.parametrize("setup", ["true", LOOPBACK_IS_THE_DEFAULT])
def test_no_warning_where_there_is_only_the_loopback(setup):
  assert warning_in_a_namespace(setup) == "None"


def test_a_warning_where_there_is_another_interface():
  assert "of every interface, 10.1.2.3 too," in warning_in_a_namespace(ONE_INTERFACE)
