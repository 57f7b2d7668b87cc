"""What the tests of links run as processes: tasks behind their links, without TensorFlow."""
from __future__ import annotations

import ctypes
import http.client
import logging
import os
import signal
import socket
import ssl
import sys
import threading

from tests.cluster_tasks import say, stay
from tf1ps import links
from tf1ps.compat import LINK_PROXY


def _enter(folder):
  logger = logging.getLogger("tf1ps")
  logger.addHandler(logging.StreamHandler(sys.stdout))
  if not links.is_inside():  # else it was entered before the task had threads
    links.enter(folder)


def echo(folder, address, hidden=0, relayed=0):
  """A task that sends back what it gets; it listens inside at a second port as well."""
  host, port = address.rsplit(":", 1)
  _enter(folder)
  server = socket.socket()
  server.bind(("", int(port)))
  server.listen(16)
  for extra in filter(None, (hidden, relayed)):
    second = socket.socket()
    second.bind(("", extra))
    second.listen(16)
    threading.Thread(target=echo_all, args=(second,), daemon=True).start()
  try:
    links.listen(host, int(port))
    if relayed:
      links.relay("127.0.0.1", relayed, relayed)
  except links.SidecarError as error:
    say("no:", error, error.is_taken)
    return 0
  say("up", sidecar())
  echo_all(server)


def sidecar():
  """The process id of this process's sidecar."""
  from tf1ps.links import task_side

  return task_side._links.process.pid


def echo_all(server):
  while True:
    connection, _ = server.accept()
    threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection):
  try:
    while True:
      data = connection.recv(1 << 20)
      if not data:
        return
      connection.sendall(data)
  except OSError:
    pass


def _through_proxy(address):
  """Dials as gRPC does; returns (status, connection)."""
  place = os.environ[LINK_PROXY].rpartition(":")[2]
  connection = socket.create_connection(("127.0.0.1", int(place)))
  connection.sendall(("CONNECT %s HTTP/1.0\r\nHost: %s\r\n\r\n" % (address, address)).encode())
  answer = http.client.HTTPResponse(connection)
  answer.begin()
  return answer.status, connection


def call(folder, *addresses, size=3000000):
  """A task that calls others, one after the other; says what came of it."""
  _enter(folder)
  for address in addresses:
    status, connection = _through_proxy(address)
    if status != 200:
      say(address, status)
      continue
    sent = os.urandom(size)
    threading.Thread(target=connection.sendall, args=(sent,), daemon=True).start()
    got = b""
    while len(got) < size:
      got += connection.recv(1 << 20)
    say(address, "echo" if got == sent else "something else")
    connection.close()
  say("done")
  stay()


def ask_a_stopped_sidecar(folder):
  """A task whose sidecar stands still."""
  from tf1ps.links import task_side

  task_side.TIMING = task_side.TIMING._replace(sidecar_limit=0.5)
  _enter(folder)
  os.kill(sidecar(), signal.SIGSTOP)
  found = "an answer"
  try:
    links.listen("127.0.0.1", 1)
  except links.SidecarError as error:
    found = error
  say("no:", found)
  stay()


def send_and_end(folder, address, size):
  """A task that sends much and ends at once."""
  _enter(folder)
  _, connection = _through_proxy(address)
  connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size)
  connection.sendall(b"x" * size)
  os._exit(0)


def send_as_first_process(folder, address, size):
  """The same as process 1 of a process namespace, as in a container."""
  if ctypes.CDLL(None).unshare(0x20000000):  # CLONE_NEWPID
    say("no namespace")
    return 0
  child = os.fork()
  if child:
    return os.waitpid(child, 0)[1] >> 8
  try:
    _enter(folder)
    _, connection = _through_proxy(address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size)
    connection.sendall(b"x" * size)
    links.deliver()
    say("sent as process", os.getpid())
  finally:
    os._exit(0)


def count(folder, address):
  """A task that says how many bytes its first caller sends."""
  host, port = address.rsplit(":", 1)
  _enter(folder)
  server = socket.socket()
  server.bind(("", int(port)))
  server.listen(1)
  links.listen(host, int(port))
  say("up")
  connection, _ = server.accept()
  total = 0
  while True:
    data = connection.recv(1 << 20)
    if not data:
      break
    total += len(data)
  say("bytes", total)
  stay()


def probe_outside(folder, address):
  """A task that tries to get out without its proxy."""
  _enter(folder)
  try:
    socket.create_connection((address.split(":")[0], int(address.split(":")[1])), 5)
    say("reached")
  except OSError as error:
    say("not reached:", error.strerror)


def serve_plainly(address):
  """A server without TLS."""
  host, port = address.rsplit(":", 1)
  server = socket.socket()
  server.bind((host, int(port)))
  server.listen(4)
  say("up")
  while True:
    connection, _ = server.accept()
    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
    connection.close()


def context_of(folder=None):
  """A client's context with the certificate of a folder, which takes any server."""
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
  if folder is not None:
    context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
  return context
