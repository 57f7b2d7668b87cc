"""Free TCP ports for the tasks of a job on this machine.

1. Candidates are drawn at random below the ephemeral range: the kernel gives ports of that range
   to outgoing connections, and could give away a port before a server binds it. (If there is too
   little room below the range, candidates are above it; if there is too little room above it, any
   port from 1024 on is a candidate.)
2. Each candidate is bound on every interface, as TensorFlow's servers do: a port that is free on
   127.0.0.1 only would fail later.
3. All candidates stay bound until there are enough; then all are closed together.

Between the close here and the bind in the task, another process may still take a port. With some
20,000 candidates two launchers seldom draw the same port. A task whose port is taken reports this
by its exit code, and the launcher draws again.
"""

from __future__ import annotations

import errno
import random
import socket
from typing import List

_FIRST = 10000  # servers of the system and of other projects like the ports below
_LAST = 65535
_ROOM = 2000  # ports; in a smaller range two launchers would often draw the same port
# IANA's ephemeral range, which most systems use, if the kernel's range cannot be read.
_IANA_EPHEMERAL = (49152, 65535)
_EPHEMERAL_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # this machine has no address of the family


def find_free_ports(n, candidates=None):
  """Returns `n` distinct TCP ports that no process on this machine had bound during the call.

  Args:
    n: int, 0 or more.
    candidates: iterable of ports to try, in this order; None draws them at random outside of
      the ephemeral range.

  Raises:
    ValueError: `n` is not an int of 0 or more.
    RuntimeError: the candidates end before `n` of them were free.
  """
  if isinstance(n, bool) or not isinstance(n, int) or n < 0:
    raise ValueError("the number of ports must be an int of 0 or more, got %r" % (n,))
  if candidates is None:
    low, high = candidate_range(*ephemeral_range())
    candidates = random.SystemRandom().sample(range(low, high + 1), high - low + 1)
  sockets = []
  try:
    for port in candidates:
      if len(sockets) == n:
        break
      bound = _bind(port)
      if bound is not None:
        sockets.append(bound)
    if len(sockets) < n:
      raise RuntimeError("only %d of %d TCP ports are free on this machine: end servers that are "
                         "not needed" % (len(sockets), n))
    return [bound.getsockname()[1] for bound in sockets]
  finally:
    for bound in sockets:
      bound.close()


def find_free_addresses(n: int) -> List[str]:
  """Returns `n` addresses 127.0.0.1:PORT; arguments and errors are those of `find_free_ports`."""
  return ["127.0.0.1:%d" % port for port in find_free_ports(n)]


def ephemeral_range():
  """Returns (first, last) of the ports that the kernel gives to outgoing connections."""
  try:
    with open(_EPHEMERAL_FILE) as text:
      first, last = (int(word) for word in text.read().split())
      return first, last
  except (OSError, ValueError):
    return _IANA_EPHEMERAL


def candidate_range(first, last):
  """Returns the range of ports to draw from, (low, high), both included.

  The range is below the ephemeral range [first, last], else above it, else all ports from 1024 on.
  """
  if first - _FIRST >= _ROOM:
    return _FIRST, first - 1
  if _LAST - last >= _ROOM:
    return last + 1, _LAST
  return 1024, _LAST


def _bind(port):
  """Returns a socket bound to `port` on every interface, or None if it is not free."""
  # A dual-stack socket, like gRPC's, conflicts with sockets of both families. Without IPv6, an IPv4
  # socket is used.
  for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
    try:
      bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
      continue
    try:
      if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
      bound.bind((address, port))
      return bound
    except OSError as error:
      bound.close()
      if error.errno not in _NO_IPV6:
        return None
  return None
