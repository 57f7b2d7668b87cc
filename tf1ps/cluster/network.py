"""The network around a server: proxies, and the interfaces on which it can be reached.

TensorFlow's servers connect to each other through gRPC, which obeys `http_proxy`: with a proxy in
the environment a cluster on 127.0.0.1 hangs without a limit, on 1.15 and on 2.21. The probe uses no
proxy, and would report such a cluster as healthy. `no_proxy` with the cluster's hosts prevents the
hang.

The servers also listen on every interface, whatever their address says, and authenticate no client.
This machine can only tell whether it has an interface besides the loopback.

A scheduler may start a task before DNS knows the names of all tasks. A server that connects to such
a name too early may look it up again only after half a minute, which is gRPC's pause between two
look-ups. So call `wait_for_names` before the server starts.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
from typing import Iterable, List, MutableMapping, Optional

from tf1ps.cluster.description import Cluster, Task, parse_address
from tf1ps.compat import LINK_PROXY, TIMING, Error

_log = logging.getLogger("tf1ps")
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
# Addresses that are reserved for documentation: no machine has them.
_RESERVED = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class UnknownHostError(Error, RuntimeError):
  """The name of a task's host was not resolved within the limit."""


def names_to_dial(cluster: Cluster) -> List[Task]:
  """Returns the tasks that this task connects to: itself and, unless it is a ps, the ps.

  A ps answers the workers, and connects to them later. An evaluator connects to no task.
  """
  if cluster.job_name not in cluster.jobs:
    return []
  return [cluster.task] + ([] if cluster.job_name == "ps" else cluster.ps)


def wait_for_names(tasks: Iterable[Task], timeout: float) -> None:
  """Waits until the names in the addresses of tasks are known; logs each unknown name.

  With encrypted links it does not wait: the sidecar looks up the name again for each connection.

  Args:
    tasks: the tasks that this process is going to connect to.
    timeout: seconds for all of them together.

  Raises:
    UnknownHostError: a name is not known; the error names the host, the task and the reason.
  """
  if LINK_PROXY in os.environ:
    return
  began = time.monotonic()
  for task in tasks:
    host, was_logged = parse_address(task.address, task.name, allow_zero=True).host, False
    while True:
      problem = _problem_of_name(host)
      if not problem:
        break
      waited = time.monotonic() - began
      seen = "%s at %s: no such host (%s)" % (task.name, task.address, problem)
      if waited >= timeout:
        raise UnknownHostError("the name %s is not known after %.0f s: %s. Check the name, or give "
                               "a longer --start_timeout" % (host, waited, seen))
      if not was_logged:
        _log.warning("waiting (%.0f of %.0f s) for the name %s: %s", waited, timeout, host, seen)
        was_logged = True
      time.sleep(max(0.0, min(TIMING.poll_interval, timeout - waited)))


def _problem_of_name(host: str) -> str:
  """Returns why a name cannot be resolved; "" if it can."""
  try:
    socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
  except (OSError, UnicodeError) as error:
    return str(getattr(error, "strerror", None) or error)
  return ""


def bypass_proxy(tasks: Iterable[Task], environ: Optional[MutableMapping[str, str]] = None) -> None:
  """Exempts the hosts of a cluster's tasks from the proxy in the environment, if any.

  The function changes `environ`, or this process's environment, so call it before a server starts.
  A task with encrypted links keeps the proxy of these links.
  """
  environ = os.environ if environ is None else environ
  if LINK_PROXY in environ or not any(environ.get(name) for name in _PROXIES):
    return
  hosts = sorted({parse_address(task.address, task.name, allow_zero=True).host for task in tasks})
  for name in _EXCEPTIONS:
    # gRPC reads the first of the two variables that is set.
    if name in environ or name == "no_proxy":
      known = [host for host in environ.get(name, "").split(",") if host]
      environ[name] = ",".join(known + [host for host in hosts if host not in known])


def exposure_warning(cluster: Cluster) -> Optional[str]:
  """Returns a warning that this task's server can be reached from outside this machine, or None.

  It returns None if this machine has no route to another machine, and for an evaluator, which has
  no server.
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
          "See `tf1ps docs security`.")


def outside_address() -> Optional[str]:
  """Returns the address from which this machine reaches others; None without a route.

  Nothing is sent: connecting a UDP socket only looks up the route.
  """
  for family, reserved in _RESERVED:
    try:
      with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((reserved, 9))
        address = probe.getsockname()[0]
    except OSError:
      continue  # this machine lacks the address family or a route
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if not parsed.is_loopback and not parsed.is_unspecified:
      return address
  return None


def is_loopback(address: str) -> bool:
  """Whether, on every machine, an address such as "localhost:2222" means that machine itself."""
  host = parse_address(address, "address", allow_zero=True).host
  try:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback
  except ValueError:  # a name: it may mean 127.0.1.1 here, and this machine elsewhere
    return False


def is_of_this_machine(address: str) -> bool:
  """Whether an interface of this machine has an address; True for an unknown name."""
  host = parse_address(address, "address", allow_zero=True).host
  try:
    places = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
  except OSError:
    return True
  for family, kind, protocol, _, place in places:
    try:
      with socket.socket(family, kind, protocol) as probe:
        probe.bind(place)
      return True
    except OSError:
      continue
  return False
