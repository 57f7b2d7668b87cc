from __future__ import annotations

import os
import signal
import subprocess
import sys

from benchmarks import links
from tests import needs

SERVE = """
import socket, sys
server = socket.socket()
server.bind((sys.argv[1], 0))
server.listen(1)
print(server.getsockname()[1], flush=True)
connection, total = server.accept()[0], 0
while total < 1000000:
  total += len(connection.recv(65536))
"""
SEND = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 60).sendall(bytes(1000000))
sys.stdin.read()
"""


def namespaces():
  """Those of this process."""
  done = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, universal_newlines=True)
  return [line for line in done.stdout.splitlines()
          if line.startswith("tf1ps-%d-" % os.getpid())]


def test_what_is_sent_to_a_stopped_process_arrives():
  """As a message of a step does when a turn ends; unsent, it would cost the connection."""
  try:
    with links.link_of(1) as link:
      server = subprocess.Popen(
        link.prefixes["ps"] + [sys.executable, "-c", SERVE, link.hosts["ps"]],
        stdout=subprocess.PIPE, universal_newlines=True)
      try:
        port = server.stdout.readline().strip()
        server.send_signal(signal.SIGSTOP)  # the kernel accepts, and takes what comes
        assert subprocess.run(
          link.prefixes["worker"] + [sys.executable, "-c", SEND.replace("1000000", "12000000"),
                                     link.hosts["ps"], port],
          stdin=subprocess.DEVNULL, timeout=60).returncode == 0
      finally:
        server.kill()
        server.communicate()
  except links.LinkError as error:
    needs.skip("namespaces", error)


def test_a_shaped_link_carries_and_counts_and_is_removed():
  before = set(namespaces())
  try:
    with links.link_of(1) as link:
      assert len(set(namespaces()) - before) == 2 and link.name.startswith("1 Gbit/s, ")
      server = subprocess.Popen(
        link.prefixes["ps"] + [sys.executable, "-c", SERVE, link.hosts["ps"]],
        stdout=subprocess.PIPE, universal_newlines=True)
      client = None
      try:
        port = server.stdout.readline().strip()
        client = subprocess.Popen(
          link.prefixes["worker"] + [sys.executable, "-c", SEND, link.hosts["ps"], port],
          stdin=subprocess.PIPE)
        assert server.wait(60) == 0
        assert links.bytes_of(client.pid, link.device) > 1000000
        client.communicate(timeout=60)
      finally:
        for process in (server, client):
          if process is not None:
            process.kill()
            process.wait()
  except links.LinkError as error:
    needs.skip("namespaces", error)
  assert set(namespaces()) == before


def test_the_loopback_device_needs_nothing():
  with links.link_of() as link:
    assert link.prefixes["ps"] == [] and link.hosts["worker"] == "127.0.0.1"
