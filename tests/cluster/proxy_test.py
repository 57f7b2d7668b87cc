from __future__ import annotations

import os

import pytest

from tests import cluster_tasks, harness
from tf1ps.cluster import proxy
from tf1ps.cluster.description import Task

TASKS = [Task("ps", 0, "a.example:2222"), Task("ps", 1, "10.0.0.7:1"), Task("worker", 0, "[::1]:5"),
         Task("worker", 1, "a.example:2223"), Task("local", 0, "localhost:0")]
HOSTS = "10.0.0.7,::1,a.example,localhost"


def changed(environ):
  """Returns what the environment becomes."""
  environ = dict(environ)
  proxy.bypass_proxy(TASKS, environ)
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
  proxy.bypass_proxy(TASKS)
  assert os.environ["no_proxy"] == "x," + HOSTS


def test_a_cluster_with_a_proxy_in_the_environment(start):
  env = {"http_proxy": "http://127.0.0.1:9", "no_proxy": None}
  workers = {}
  for kind in ("stock", "ours"):
    jobs = {job: harness.addresses(1) for job in ("ps", "worker")}
    start(kind, cluster_tasks.exchange, kind, jobs, "ps", 60.0, **env).wait_for("up")
    limit = {"stock": 1.5, "ours": 30.0}[kind]
    workers[kind] = start(kind, cluster_tasks.exchange, kind, jobs, "worker", limit, **env)
  workers["ours"].wait_for("sum 5")
  workers["stock"].wait_for("hangs")  # the trap
