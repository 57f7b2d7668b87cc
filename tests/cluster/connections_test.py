from __future__ import annotations

import os
import socket

import pytest

from tests import harness, needs
from tf1ps.cluster import connections
from tf1ps.cluster.description import Task
from tf1ps.compat import LINK_PROXY

pytestmark = [
  pytest.mark.any_tensorflow,
  pytest.mark.skipif(not os.path.exists("/proc/self/net/tcp"), reason="Linux lists connections")]


@pytest.mark.parametrize("family,host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_connections_to_a_server_count_and_those_from_its_process_are_taken_off(family, host):
  try:
    listener = socket.socket(family)
    listener.bind((host, 0))
  except OSError:
    needs.skip("IPv6")
  with listener:
    listener.listen(1)
    port = listener.getsockname()[1]
    here, other = "grpc://%s:%d" % (host, port), "grpc://localhost:1"
    task = Task("ps", 0, "localhost:%d" % port)
    assert connections.count_connections(here, []) == 0
    with socket.create_connection((host, port)):
      accepted, _ = listener.accept()
      with accepted:
        assert connections.count_connections(here, []) == 1
        assert connections.count_connections(other, [task]) == -1
        assert connections.count_connections(here, [task]) == 0
    harness.wait_until(lambda: connections.count_connections(here, []) == 0)


def test_connections_to_the_proxy_of_links_are_taken_off(monkeypatch):
  with socket.socket() as server, socket.socket() as proxy:
    for each in (server, proxy):
      each.bind(("127.0.0.1", 0))
      each.listen(1)
    here, there = ["127.0.0.1:%d" % each.getsockname()[1] for each in (server, proxy)]
    monkeypatch.setenv(LINK_PROXY, "http://" + there)
    with socket.create_connection(server.getsockname()), \
        socket.create_connection(proxy.getsockname()):
      assert connections.count_connections("grpc://" + here, []) == 0
      monkeypatch.delenv(LINK_PROXY)
      assert connections.count_connections("grpc://" + here, []) == 1


def test_a_system_without_a_list_has_none(monkeypatch):
  monkeypatch.setattr(connections, "_LISTS", ("/nowhere/tcp",))
  assert connections.count_connections("grpc://localhost:1", []) == 0
