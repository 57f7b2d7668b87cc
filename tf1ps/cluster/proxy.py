"""A proxy for the outside world has no business between the tasks of a cluster.

TensorFlow's servers dial each other through gRPC, which obeys `http_proxy`: with one in the
environment a cluster on 127.0.0.1 hangs for ever, on 1.15 and on 2.21. The probe turns the proxy
off for itself, and would call such a cluster healthy. `no_proxy` with the cluster's hosts cures
both.
"""

from __future__ import annotations

import os
from typing import Iterable, MutableMapping, Optional

from tf1ps.cluster.description import parse_address

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def bypass_proxy(tasks: Iterable, environ: Optional[MutableMapping[str, str]] = None) -> None:
  """Excepts the hosts of a cluster from the proxy that the environment names, if it names one.

  Args:
    tasks: the `spec.Task`s of the cluster.
    environ: the environment to change before a server starts; None: this process's.
  """
  environ = os.environ if environ is None else environ
  if not any(environ.get(name) for name in _PROXIES):
    return
  hosts = sorted({parse_address(task.address, task.name, allow_zero=True).host
                  for task in tasks})
  for name in _EXCEPTIONS:
    # gRPC reads the first of the two that is set.
    if name in environ or name == "no_proxy":
      known = [host for host in environ.get(name, "").split(",") if host]
      environ[name] = ",".join(known + [host for host in hosts if host not in known])
