"""The task's side of its links: starts the sidecar, enters the namespace, feeds the sidecar.

A pair of sockets carries requests of the main thread; on another pair, a thread serves the sidecar.
When the sidecar has ended, so does the task: nobody reaches it any more.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
from typing import Callable, NamedTuple, Optional, Sequence

from tf1ps.compat import EXIT_FAILED, LINK_PROXY, TIMING, Error, signal_name
from tf1ps.links import sidecar
from tf1ps.links.identity import Identity
from tf1ps.links.network_namespace import enter_namespace

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = ("import sys; sys.path[:] = %r; from tf1ps.links import sidecar; "
          "sidecar.main(%d, %d, %r, %d)")
# gRPC of TensorFlow 2 and of grpcio reads the first variable, that of 1.15 only the second.
_PROXY_VARIABLES = ("grpc_proxy",) if sys.version_info >= (3, 8) else ("grpc_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
_TAKEN = os.strerror(98)  # EADDRINUSE
_HOSTS_AT_ONCE = 200  # in a message, which is short
_log = logging.getLogger("tf1ps")


class SidecarError(Error, RuntimeError):
  """The sidecar cannot do what the task needs.

  Attributes:
    is_taken: whether another process has the port.
  """

  def __init__(self, text: str, is_taken: bool = False):
    super().__init__(text)
    self.is_taken = is_taken


class _Links(NamedTuple):
  process: subprocess.Popen
  control: socket.socket


_links: Optional[_Links] = None  # of this process
_leave: Callable[[str], None] = None  # ends the task, with a reason


def enter(folder: str) -> None:
  """Starts the sidecar of this process, and moves this process into a namespace of its own.

  Call it before the process has a second thread, and before it imports TensorFlow.

  Args:
    folder: with cert.pem, key.pem and ca.pem.

  Raises:
    IdentityError: the files cannot be used.
    NamespaceError: the system permits no namespace. The process is as before.
  """
  global _links
  identity = Identity(folder)
  identity.check()
  control, far_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  feed, far_feed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  # An editable installation is found without its folder in sys.path, which -S would not know.
  path = [entry for entry in sys.path if isinstance(entry, str)] + [_ROOT]
  code = _START % (path, far_control.fileno(), far_feed.fileno(), identity.folder, os.getpid())
  try:
    # -S: the path is there already, and looking for packages takes as long as all the rest.
    process = subprocess.Popen(
      [sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
      start_new_session=True, pass_fds=(far_control.fileno(), far_feed.fileno()))
  finally:
    far_control.close()
    far_feed.close()
  try:
    enter_namespace()
  except BaseException:
    control.close()
    feed.close()
    process.kill()
    process.wait()
    raise
  proxy = socket.socket()
  proxy.bind(("127.0.0.1", 0))
  proxy.listen(128)
  spares = [socket.socket() for _ in range(sidecar.SPARES - 1)]
  try:
    sidecar.send(feed, {"proxy": True}, [proxy, *spares])
  except OSError as error:
    raise SidecarError("the sidecar (process %d) has ended" % process.pid) from error
  address = "http://127.0.0.1:%d" % proxy.getsockname()[1]
  for each in [proxy, *spares]:
    each.close()
  for name in _PROXY_VARIABLES:
    os.environ[name] = address
  for name in _EXCEPTIONS:  # every task of the cluster is behind the proxy
    os.environ.pop(name, None)
  os.environ[LINK_PROXY] = address
  silence_grpc()
  control.settimeout(TIMING.sidecar_limit)
  _links = _Links(process, control)
  threading.Thread(target=_serve, args=(process, feed), daemon=True, name="tf1ps: links").start()


def silence_grpc() -> None:
  """Has gRPC, once it is imported, print nothing about calls that the proxy refuses.

  For example a call to a task that starts later: the caller reports it.
  """
  os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def is_inside() -> bool:
  """Whether this process has links, and reaches nothing else."""
  return _links is not None


def listen(host: str, port: int, hosts: Sequence[str] = ()) -> None:
  """Opens the task's port to the other tasks.

  Args:
    host, port: the task's address.
    hosts: names or addresses of the job's hosts, whose connections come before those of strangers.

  Raises:
    SidecarError: the port cannot be opened.
  """
  for i in range(0, len(hosts), _HOSTS_AT_ONCE):
    _ask({"hosts": list(hosts[i:i + _HOSTS_AT_ONCE])}, "")
  _ask({"listen": [host, port]}, "%s:%d" % (host, port))


def relay(host: str, port: int, inner: int) -> None:
  """Opens a port without TLS that leads to a port of this process; raises SidecarError.

  For what others scrape, such as metrics.
  """
  _ask({"relay": [host, port], "inner": inner}, "%s:%d" % (host, port))


def deliver() -> None:
  """Waits, within a limit, until the sidecar has delivered all bytes of this process.

  Only the first process of a container needs this: the system kills the sidecar together with it.
  Any other sidecar goes on delivering when its task has ended.
  """
  if _links is not None and os.getpid() == 1:
    try:
      _ask({"deliver": True}, "")
    except SidecarError:
      pass


def on_lost(leave: Callable[[str], None]) -> None:
  """Sets the function that ends this task when its sidecar has ended; it gets the reason."""
  global _leave
  _leave = leave


def _ask(request, what):
  try:
    sidecar.send(_links.control, request)
    answer, _ = sidecar.receive(_links.control)
  except socket.timeout as error:
    raise SidecarError("the sidecar (process %d) gave no answer within %g s" % (
      _links.process.pid, TIMING.sidecar_limit)) from error
  except OSError:
    answer = None
  if answer is None:
    raise SidecarError("the sidecar has ended")
  if answer["error"]:
    raise SidecarError("the sidecar cannot listen at %s: %s" % (what, answer["error"]),
                       is_taken=answer["error"] == _TAKEN)


def _serve(process, feed):
  """Serves the sidecar until it ends; then the task ends."""
  while True:
    try:
      message, _ = sidecar.receive(feed)
      if message is None:
        break
      if "say" in message:
        _log.warning("the sidecar %s", message["say"])
      else:
        spares = [socket.socket() for _ in range(min(message["need"], sidecar.SPARES))]
        sidecar.send(feed, {}, spares)
        for each in spares:
          each.close()
    except OSError:
      break
  try:
    code = process.wait(TIMING.link_end_limit)
  except subprocess.TimeoutExpired:
    code = None
  how = ("ended with exit code %s" % code if code is None or code >= 0
         else "was killed by %s" % signal_name(-code))
  reason = "its sidecar (process %d) %s, and without it no other task is reached" % (
    process.pid, how)
  if _leave is not None:
    _leave(reason)
  print("tf1ps: " + reason, file=sys.stderr, flush=True)
  os._exit(EXIT_FAILED)
