"""Counts the connections of a server, which show clients that are not tasks of the cluster.

A further process may use a server through `tf.Session("grpc://HOST:PORT")`. TensorFlow does not
show the sessions on a server. But Linux lists the open connections of a machine in /proc/net, and a
client keeps its connection until it closes its session or ends. The servers have connections among
themselves, too, as many as their sessions need. Each connection between servers has two ends in the
cluster, but a client's connection has a single end there. For each server, count the connections to
the server less the connections from its process. The sum over all servers is the number of client
connections.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Sequence, Set

from tf1ps.cluster.description import Task
from tf1ps.compat import LINK_PROXY

_LISTS = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_FILES = "/proc/self/fd"
_ESTABLISHED = "01"


class _Connection(NamedTuple):
  """An end of an open connection."""

  port: int  # the port of this end
  to: int  # the port of the other end
  inode: str  # the inode of the socket


def count_connections(target: str, tasks: Sequence[Task]) -> int:
  """Returns how many more connections a server of this process has than the process has to others.

  Args:
    target: the target of the server, such as "grpc://localhost:2222".
    tasks: the tasks of the cluster.

  Returns:
    The number of connections to the server, less the number of connections from this process to the
    ports of the tasks; 0 if the system has no list of connections.
  """
  own, ports = _port(target), {_port(task.address) for task in tasks}
  if LINK_PROXY in os.environ:  # with --tls_dir this process calls other tasks through its proxy
    ports.add(_port(os.environ[LINK_PROXY]))
  connections = _connections()
  from_here = {connection for connection in connections if connection.to in ports}
  if from_here:
    sockets = _sockets()
    from_here = {connection for connection in from_here if connection.inode in sockets}
  return sum(connection.port == own for connection in connections) - len(from_here)


def _port(address: str) -> int:
  return int(address.rsplit(":", 1)[1])


def _connections() -> Set[_Connection]:
  connections = set()
  for path in _LISTS:
    try:
      with open(path) as lines:
        fields = [line.split() for line in list(lines)[1:]]
    except OSError:
      continue
    connections.update(
      _Connection(int(row[1].rpartition(":")[2], 16), int(row[2].rpartition(":")[2], 16), row[9])
      for row in fields if row[3] == _ESTABLISHED)
  return connections


def _sockets() -> Set[str]:
  """Returns the inodes of this process's sockets."""
  sockets = set()
  for name in os.listdir(_FILES):
    try:
      path = os.readlink(os.path.join(_FILES, name))
    except OSError:  # the file was closed meanwhile
      continue
    if path.startswith("socket:["):
      sockets.add(path[len("socket:["):-1])
  return sockets
