"""The process beside a task that carries its connections over TLS. It never imports TensorFlow.

The task starts it, and talks with it over two pairs of Unix sockets that nobody else can open:

    control: {"hosts": [host, ...]} of the job, {"listen": [host, port]} or {"relay": [host, port],
             "inner": port}, and the answer {"error": text}, "" after success;
             {"deliver": true}, which is answered when nothing waits to be carried
    feed:    sockets of the task's namespace, as descriptors: first the listening socket of its
             proxy, then spare sockets for calls to the task's own port. The sidecar asks for more
             by {"need": number}, and has the task log a line by {"say": text}.

A connection to the proxy begins with gRPC's "CONNECT host:port". The sidecar dials that address
over TLS. The other sidecar (see callers.py) calls its task, and answers "+", or "-" if nobody
listens there. Only then the proxy says 200; gRPC shows any other status to the caller
(compat/worker_service.py).

It ends with its task, after it has delivered what the task sent last. It has a session of its own,
and ignores signals: what ends a task's group must not cut the links on which the task still saves.
"""

from __future__ import annotations

import array
import errno
import ipaddress
import json
import os
import selectors
import signal
import socket
import ssl
import sys
import threading
import time
from typing import Dict, List

from tf1ps.compat import (
  LINK_CERTIFICATE,
  LINK_CLOSED,
  LINK_NO_HOST,
  LINK_NO_SERVER,
  LINK_NO_TLS,
  LINK_REFUSED,
  LINK_REFUSES_US,
  LINK_UNREACHABLE,
  TIMING,
  Error,
)
from tf1ps.links.callers import Callers
from tf1ps.links.identity import Identity, IdentityError, explain
from tf1ps.links.pump import Plain, Sealed, is_at_rest, pump

SPARES = 48  # sockets at hand; a task may hold Python's lock for seconds
_LOW = 24
_MOST_RELAYED = 128  # connections to the metrics at a time: their server chooses those that leave
_AT_ONCE = 64  # connections that are accepted before anything else is looked at
_LONGEST_HEAD = 8192  # bytes of a request to the proxy
_BACKLOG = 512
_PLUS, _MINUS = b"+", b"-"


class LinkError(Error, RuntimeError):
  """A link cannot be made. Internal: the proxy's answer has the status.

  Attributes:
    status: of the proxy's answer.
  """

  def __init__(self, status: int, text: str):
    super().__init__(text)
    self.status = status


def main(control: int, feed: int, folder: str, parent: int) -> None:
  """Runs the sidecar of the parent process; does not return.

  Args:
    control, feed: descriptors of its ends of the pairs.
    folder: of the certificate.
    parent: the task's process id.
  """
  for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
  sys.setswitchinterval(0.0005)  # a thread that waits for Python's lock delays a message
  code = 1
  try:
    _Sidecar(*(socket.socket(fileno=each) for each in (control, feed)),
             Identity(folder), parent).run()
    code = 0
  finally:
    if code:
      sys.excepthook(*sys.exc_info())
    os._exit(code)


def receive(connection: socket.socket):
  """Receives a message; returns (its object, descriptors), or (None, []) at the end."""
  size = array.array("i").itemsize
  data, extra, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(size * SPARES))
  numbers = array.array("i")
  for level, kind, content in extra:
    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
      numbers.frombytes(content[:len(content) - len(content) % size])
  return (json.loads(data.decode("utf-8")) if data else None), list(numbers)


def send(connection: socket.socket, value, sockets=(), flags: int = 0) -> None:
  """Sends a message with sockets."""
  extra = []
  if sockets:
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
              array.array("i", [each.fileno() for each in sockets]))]
  connection.sendmsg([json.dumps(value).encode("utf-8")], extra, flags)


def _is_loopback(host: str) -> bool:
  try:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback
  except ValueError:
    return False


def _listen(family, address) -> socket.socket:
  listener = socket.socket(family, socket.SOCK_STREAM)
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
      listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(address)
    listener.listen(_BACKLOG)
    return listener
  except BaseException:
    listener.close()
    raise


class _Sidecar:
  def __init__(self, control, feed, identity: Identity, parent: int):
    self._control, self._feed, self._identity, self._parent = control, feed, identity, parent
    self._lock = threading.Condition()
    self._spares: List[socket.socket] = []
    self._needs = 0  # sockets that were asked for and have not come
    self._own = ("", 0)  # this task's host and port, once it listens
    self._said: Dict[str, float] = {}  # when a line was logged last
    self._threads = 0
    self._relayed = threading.BoundedSemaphore(_MOST_RELAYED)
    self._reload = threading.Lock()
    self._selector = selectors.DefaultSelector()
    self._callers = Callers(
      self._selector, lambda caller: self._start(self._serve_peer, caller.socket, caller),
      self._say)

  def run(self):
    """Serves until the task has ended and its last bytes are delivered."""
    self._selector.register(self._control, selectors.EVENT_READ, self._obey)
    self._selector.register(self._feed, selectors.EVENT_READ, self._take_sockets)
    warn_at = 0.0
    while os.getppid() == self._parent:
      if time.monotonic() >= warn_at:
        warn_at = time.monotonic() + TIMING.certificate_interval
        self._warn()
      if not all(key.data() for key, _ in self._selector.select(TIMING.heartbeat_interval)):
        break
      self._callers.expire()
    self._callers.close()
    for key in list(self._selector.get_map().values()):
      key.fileobj.close()
    with self._lock:
      self._lock.wait_for(lambda: not self._threads, TIMING.link_end_limit)

  def _warn(self):
    try:
      warning = self._identity.warning()
    except IdentityError:  # connections say so
      return
    if warning is not None:
      self._say(warning)

  # Messages of the task. Each returns whether the task is still there.

  def _obey(self):
    try:
      message, _ = receive(self._control)
    except ConnectionError:
      message = None
    if message is None:
      return False
    try:
      if "deliver" in message:
        self._deliver()
      elif "hosts" in message:
        self._callers.hosts.add(message["hosts"])
      elif "listen" in message:
        self._callers.hosts.look_up()
        self._own = tuple(message["listen"])
        self._open(*self._own, welcome=self._callers.arrive)
      else:
        inner = message["inner"]
        self._open(*message["relay"], welcome=lambda caller, _: self._start(
          self._relay, caller, inner), exactly=True)
      answer = ""
    except OSError as error:
      answer = error.strerror or str(error)
    try:
      send(self._control, {"error": answer})
    except OSError:
      return False
    return True

  def _deliver(self):
    until, quiet = time.monotonic() + TIMING.link_end_limit, 0
    while quiet < 3 and time.monotonic() < until:  # a thread may hold bytes between two looks
      quiet = quiet + 1 if is_at_rest() else 0
      time.sleep(TIMING.queue_poll_interval)

  def _take_sockets(self):
    try:
      message, numbers = receive(self._feed)
    except ConnectionError:
      message = None
    if message is None:
      return False
    sockets = [socket.socket(fileno=number) for number in numbers]
    if "proxy" in message:
      self._accept_from(sockets.pop(0), lambda caller, _: self._start(self._serve_proxy, caller))
    with self._lock:
      self._spares += sockets
      self._needs = max(0, self._needs - len(sockets))
      self._lock.notify_all()
    return True

  # Connections.

  def _open(self, host, port, welcome, exactly=False):
    """Listens at a task's port; of every interface, if its address is not of this machine alone."""
    if exactly or _is_loopback(host):
      family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
      places = [(family, address)]
    else:
      places = [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("", port))]
    until = time.monotonic() + TIMING.port_free_limit
    while True:
      try:
        listener = _listen(*places[0])
        break
      except OSError as error:
        if error.errno != errno.EADDRINUSE and len(places) > 1:
          places.pop(0)  # no IPv6 here
        elif time.monotonic() > until:  # an earlier process of this task may just be ending
          raise
        else:
          time.sleep(TIMING.local_poll_interval)
    self._accept_from(listener, welcome)

  def _accept_from(self, listener, welcome):
    listener.setblocking(False)

    def accept():
      try:
        for _ in range(_AT_ONCE):
          welcome(*listener.accept())
      except OSError:  # nobody waits, the caller has left, or there are too many
        pass
      return True

    self._selector.register(listener, selectors.EVENT_READ, accept)

  def _start(self, serve, caller, *args):
    """Serves a connection in a thread, which closes it at the end."""
    caller.setblocking(True)
    with self._lock:
      self._threads += 1
    threading.Thread(target=self._run, args=(serve, caller, *args), daemon=True).start()

  def _run(self, serve, caller, *args):
    try:
      serve(caller, *args)
    except (OSError, LinkError):
      pass
    finally:
      caller.close()
      with self._lock:
        self._threads -= 1
        self._lock.notify_all()

  def _contexts(self):
    with self._reload:
      try:
        return self._identity.contexts()
      except IdentityError as error:
        last = self._identity.last_contexts
        if last is None:
          raise LinkError(LINK_CERTIFICATE, str(error)) from error
        self._say("goes on with the certificate that it had: %s" % error)
        return last

  def _call_task(self, port):
    with self._lock:
      missing = SPARES - len(self._spares) - self._needs
      if len(self._spares) < _LOW and missing > 0:
        self._needs += missing
        send(self._feed, {"need": missing})
      if not self._lock.wait_for(lambda: self._spares, TIMING.link_limit):
        raise LinkError(LINK_UNREACHABLE, "the task gives no socket")
      spare = self._spares.pop()
    try:
      spare.settimeout(TIMING.link_limit)
      spare.connect(("127.0.0.1", port))
      return spare
    except OSError:
      spare.close()
      raise

  def _relay(self, caller, port):
    if self._relayed.acquire(blocking=False):
      try:
        pump(Plain(caller), Plain(self._call_task(port)))
      finally:
        self._relayed.release()

  def _serve_peer(self, connection, caller):
    """Serves a connection from outside, which has sent something."""
    link = None
    try:
      link = Sealed(connection, self._contexts()[1])
    except ssl.SSLError as error:
      reason = str(getattr(error, "reason", "") or error)
      if "PEER_DID_NOT_RETURN" in reason:
        text = "it has no certificate"
      elif getattr(error, "verify_code", None) is not None:
        text = "its certificate %s" % explain(error)
      elif "ALERT" in reason:
        text = "it refuses this task's certificate (%s)" % reason
      else:
        text = "it does not speak TLS, as a task without --tls_dir (%s)" % reason
      self._say("refuses a connection from %s: %s" % (caller.source, text))
    finally:
      has_place = self._callers.leave(caller)
    if link is None or not has_place:
      return
    try:
      inner = self._call_task(self._own[1])
    except (OSError, LinkError):
      link.write_byte(_MINUS)
      link.close()
      return
    link.write_byte(_PLUS)
    pump(link, Plain(inner))

  def _serve_proxy(self, caller):
    """Serves a connection of the task."""
    caller.settimeout(TIMING.link_limit)
    head = b""
    while b"\r\n\r\n" not in head:
      more = caller.recv(_LONGEST_HEAD)
      if not more or len(head) > _LONGEST_HEAD:
        return
      head += more
    words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split()
    host, _, port = words[1].rpartition(":") if len(words) > 1 else ("", "", "")
    if words[:1] != ["CONNECT"] or not port.isdigit() or int(port) > 65535:
      caller.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
      return
    try:
      far = self._dial(host.strip("[]"), int(port))
    except LinkError as error:
      caller.sendall(b"HTTP/1.1 %d No Link\r\nContent-Length: 0\r\n\r\n" % error.status)
      return
    caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    pump(Plain(caller), far)

  def _dial(self, host, port):
    """Connects to a task; raises LinkError."""
    # A server of TensorFlow dials itself at localhost, which its certificate need not name.
    if port == self._own[1] and (
        host == "localhost" or _is_loopback(host) and not _is_loopback(self._own[0])):
      try:
        return Plain(self._call_task(port))
      except OSError as error:
        raise LinkError(LINK_REFUSED, str(error)) from error
    context, at = self._contexts()[0], "%s:%d" % (host, port)
    try:
      far = socket.create_connection((host, port), TIMING.link_limit)
    except (socket.gaierror, UnicodeError) as error:
      raise LinkError(LINK_NO_HOST, str(error)) from error
    except ConnectionRefusedError as error:
      raise LinkError(LINK_REFUSED, str(error)) from error
    except OSError as error:
      raise LinkError(LINK_UNREACHABLE, str(error)) from error
    try:
      link = Sealed(far, context, host)
      answer = link.read_byte()
    except (OSError, ssl.SSLError) as error:
      far.close()
      raise self._link_error(error, at) from error
    if answer != _PLUS:
      link.close()
      raise LinkError(LINK_NO_SERVER, "its task does not listen")
    return link

  def _link_error(self, error, at):
    reason = str(getattr(error, "reason", "") or error)
    if getattr(error, "verify_code", None) is not None:
      status, text = LINK_CERTIFICATE, "its certificate %s" % explain(error)
    elif isinstance(error, ssl.SSLError) and "ALERT" in reason:
      status, text = LINK_REFUSES_US, "it refuses this task's certificate (%s)" % reason
    elif isinstance(error, socket.timeout):
      status, text = LINK_UNREACHABLE, "it is silent"
    elif isinstance(error, ssl.SSLError):
      status, text = LINK_NO_TLS, "it does not speak TLS, as a task without --tls_dir"
    else:
      status, text = LINK_CLOSED, str(error)
    if status not in (LINK_UNREACHABLE, LINK_CLOSED):
      self._say("has no link to %s: %s" % (at, text))
    return LinkError(status, text)

  def _say(self, text):
    """Has the task log a line, but not the same line again at once."""
    now = time.monotonic()
    with self._lock:
      if now - self._said.get(text, -TIMING.reminder_interval) < TIMING.reminder_interval:
        return
      if len(self._said) > 1000:  # strangers choose some of the texts
        self._said.clear()
      self._said[text] = now
      try:
        send(self._feed, {"say": text}, flags=socket.MSG_DONTWAIT)  # the task may be stopped
      except OSError:
        pass
