"""The warning that a server can be reached from outside this machine.

TensorFlow's servers listen on every interface, whatever their address says, and ask nobody who he
is. All that can be told from here is whether this machine has an interface besides the loopback.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Optional

from tf1ps.cluster.description import Cluster, parse_address

# Addresses that are reserved for documentation: nobody has them.
_NOBODY = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def exposure_warning(cluster: Cluster) -> Optional[str]:
  """Returns one line that says who can reach this task's server, or None.

  Args:
    cluster: The view, of whose task the line speaks.

  Returns:
    None if this machine has no route to anywhere else, and for an evaluator, which has no server.
  """
  task = cluster.task
  if task.job not in cluster.jobs:
    return None
  address = outside_address()
  if address is None:
    return None
  port = parse_address(task.address, task.name, allow_zero=True).port
  which = f"port {port}" if port else "a port that the system chooses"
  return (f"{task.name} listens on {which} of every interface, {address} too, as all TensorFlow "
          "servers do: anyone who can connect can run anything here. "
          'See "Who can connect" in README.md.')


def outside_address() -> Optional[str]:
  """Returns the address by which this machine would speak to others; None without a route there.

  Nothing is sent: connecting a UDP socket only looks up the route.
  """
  for family, nobody in _NOBODY:
    try:
      with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((nobody, 9))
        address = probe.getsockname()[0]
    except OSError:
      continue  # no such family here, or no route
    found = ipaddress.ip_address(address.partition("%")[0])
    if not found.is_loopback and not found.is_unspecified:
      return address
  return None
