"""Encrypted and authenticated links between the tasks of a job: `--tls_dir`.

TensorFlow's servers have no TLS and listen on every interface. So a task moves into a network
namespace of its own, where nobody reaches its port, and a process beside it stays outside: the
*sidecar*. It carries each connection of the task, in both directions, over mutual TLS.

    a task                                          another task
    gRPC --> CONNECT proxy of its sidecar --TLS--> its sidecar --> its port
    [ in its namespace ]  [ outside ]              [ outside ]     [ in its namespace ]

1. `enter` starts the sidecar and moves this process into a new namespace.
2. A socket belongs to the namespace that it was made in, wherever it is used. So the task makes
   the proxy's listening socket, and sockets for calls to its own port, and hands them to the
   sidecar. No second process has to copy bytes within the namespace.
3. gRPC of TensorFlow and of grpcio dials through the proxy, with the addresses of the cluster.
4. `listen` has the sidecar open the task's port to the world.

The authority of a job signs its certificates (authority.py). Each side of a link demands a
certificate of that authority, and the side that dials demands that it names the host.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "authority": ["AuthorityError", "make_certificates"],
  "identity": ["Identity", "IdentityError"],
  "network_namespace": ["NamespaceError", "check_namespaces"],
  "sidecar": ["LinkError"],
  "task_side": [
    "SidecarError", "deliver", "enter", "is_inside", "listen", "on_lost", "relay", "silence_grpc"],
})
