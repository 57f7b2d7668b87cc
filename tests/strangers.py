"""Whoever may listen where a task is expected, and is no TensorFlow server."""
from __future__ import annotations

import concurrent.futures
import contextlib
import http.server
import socket
import threading

import grpc

from tests.harness import LIMIT


@contextlib.contextmanager
def silent():
  """Listens, and never answers; yields the address."""
  with socket.socket() as listening:
    listening.bind(("127.0.0.1", 0))
    listening.listen(5)
    yield "127.0.0.1:%d" % listening.getsockname()[1]


@contextlib.contextmanager
def half_open(address, count, source="", first=b""):
  """Opens connections, sends the first bytes on each, and no more; yields the sockets."""
  host, port = address.rsplit(":", 1)
  with contextlib.ExitStack() as stack:
    connections = []
    for _ in range(count):
      connections.append(stack.enter_context(
        socket.create_connection((host, int(port)), LIMIT, source_address=(source, 0))))
      connections[-1].sendall(first)
    yield connections


@contextlib.contextmanager
def talker(answer):
  """Answers each connection with some bytes, and closes it; yields the address."""
  with socket.socket() as listening:
    listening.bind(("127.0.0.1", 0))
    listening.listen(5)

    def serve():
      with contextlib.suppress(OSError):  # shut down
        while True:
          connection, _ = listening.accept()
          with connection:
            connection.sendall(answer)

    with _in_background(serve):
      yield "127.0.0.1:%d" % listening.getsockname()[1]
      listening.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def web_server(status=501):
  """A web server, which is no proxy: it answers CONNECT with a status; yields its address."""
  handler = type("Handler", (http.server.BaseHTTPRequestHandler,), {
    "do_CONNECT": lambda request: request.send_error(status)})
  with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
    with _in_background(lambda: server.serve_forever(0.02)):
      yield "127.0.0.1:%d" % server.server_port
      server.shutdown()


@contextlib.contextmanager
def grpc_server(service, answer=b"", error=""):
  """A gRPC server with one service, whose methods all answer or fail alike; yields its address."""
  handler = grpc.unary_unary_rpc_method_handler(lambda request, context: (
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, error) if error else answer))
  server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[
      grpc.method_handlers_generic_handler(service, dict.fromkeys(
        ["GetStatus", "CleanupAll", "RegisterGraph"], handler))])
  port = server.add_insecure_port("127.0.0.1:0")
  server.start()
  yield "127.0.0.1:%d" % port
  server.stop(None).wait()


@contextlib.contextmanager
def _in_background(function):
  thread = threading.Thread(target=function, daemon=True)
  thread.start()
  try:
    yield
  finally:
    thread.join(LIMIT)
