"""Counts the connections of a server, which show clients that are no tasks of the cluster.

A further process may use a server by `tf.Session("grpc://HOST:PORT")`. TensorFlow tells a server
nothing of the sessions on it. Linux lists the open connections of a machine in /proc/net: a client
has one until it closes its session or ends. The servers have connections among themselves, too, as
many as their sessions need. Each of these has two ends in the cluster, and a client's has one. So
the connections to a server less those from its process, summed up over all servers, are those of
the clients.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Sequence, Set

from tf1ps.cluster.description import Task

_LISTS = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_FILES = "/proc/self/fd"
_ESTABLISHED = "01"


class _Connection(NamedTuple):
  """One end of an open connection."""

  port: int  # of this end
  to: int  # the port of the other end
  inode: str  # of the socket


def count_connections(target: str, tasks: Sequence[Task]) -> int:
  """Returns how many more connections a server of this process has than the process has to others.

  Args:
    target: of the server, such as "grpc://localhost:2222".
    tasks: the tasks of the cluster.

  Returns:
    The connections to the server, less those from this process to the ports of the tasks; 0 where
    the system has no list of them.
  """
  own, ports = _port(target), {_port(task.address) for task in tasks}
  connections = _connections()
  from_here = {one for one in connections if one.to in ports}
  if from_here:
    sockets = _sockets()
    from_here = {one for one in from_here if one.inode in sockets}
  return sum(one.port == own for one in connections) - len(from_here)


def _port(address: str) -> int:
  return int(address.rsplit(":", 1)[1])


def _connections() -> Set[_Connection]:
  found = set()
  for path in _LISTS:
    try:
      with open(path) as lines:
        fields = [line.split() for line in list(lines)[1:]]
    except OSError:
      continue
    found.update(
      _Connection(int(one[1].rpartition(":")[2], 16), int(one[2].rpartition(":")[2], 16), one[9])
      for one in fields if one[3] == _ESTABLISHED)
  return found


def _sockets() -> Set[str]:
  """Returns the inodes of this process's sockets."""
  found = set()
  for name in os.listdir(_FILES):
    try:
      path = os.readlink(os.path.join(_FILES, name))
    except OSError:  # it was closed meanwhile
      continue
    if path.startswith("socket:["):
      found.add(path[len("socket:["):-1])
  return found
