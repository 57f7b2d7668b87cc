"""Serves /metrics, /healthz and /readyz of a task over HTTP, for --metrics_port.

It listens on 127.0.0.1 unless the flag names another address, changes nothing, and asks for no
password. /healthz answers as long as the process lives. /readyz answers 200 when

a worker     has an open session, and its step does not stall (`stall_watch`);
a ps         has its server up, and the task that keeps the heartbeats has answered it;
an evaluator follows its directory;

else 503, with the reason. Anyone who reaches the address can open connections. So the number of
connections is at most `PLACES`. For one more connection, the server closes an earlier connection:
mostly the oldest connection that has sent no request, otherwise the oldest connection that has.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading
import wsgiref.simple_server
from typing import Callable, Dict, NamedTuple

from tf1ps.monitoring import metrics
from tf1ps.monitoring.metrics_address import (
  MetricsAddress,
  MetricsError,
  check_prometheus_client,
)

PLACES = 64
_LONGEST_HEAD = 1 << 16  # bytes of a request before its end


class Readiness(NamedTuple):
  """Whether a task is ready."""

  is_ready: bool
  reason: str


class MetricsServer:
  """The server of a task.

  Attributes:
    url: the URL of the metrics: "http://127.0.0.1:9100/metrics".
  """

  def __init__(self, address: MetricsAddress, job: str, role: str, index: int):
    """Listens, and answers requests from now on.

    Args:
      address: where to listen.
      job: the job of the task: "worker".
      role: the task's role: "chief", "worker", "ps" or "evaluator".
      index: the task's index in the job.

    Raises:
      MetricsError: prometheus_client is missing, or the address is taken.
    """
    check_prometheus_client()
    import prometheus_client

    self._evaluator: Callable[[], object] = lambda: None
    self._registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=self._registry)
    self._registry.register(metrics.Collector((job, role, index), self.look))
    self._metrics = prometheus_client.make_wsgi_app(self._registry)
    self._server = make_http_server(address, self._answer)
    self.url = "http://%s/metrics" % (address,)
    threading.Thread(target=self._server.serve_forever, daemon=True, name="tf1ps: metrics").start()

  def show_evaluator(self, figures: Callable[[], object]) -> None:
    """Shows the figures of an evaluator: `figures` returns `EvaluatorFigures`, or None."""
    self._evaluator = figures

  def close(self) -> None:
    """Ends the server."""
    self._server.shutdown()
    self._server.server_close()

  def look(self) -> metrics.View:
    """Returns the present values for a scrape."""
    evaluator = self._evaluator()
    if evaluator is not None:
      return metrics.View(True, evaluator=evaluator)
    heartbeat = _heartbeat()
    if heartbeat is None:
      return metrics.View(False)
    from tf1ps.monitoring.status import state_of

    states: Dict[str, int] = {}
    for member in heartbeat.members():
      states[state_of(member)] = states.get(state_of(member), 0) + 1
    return metrics.View(
      self.readiness().is_ready, heartbeat.own(), heartbeat.figures(), None, heartbeat.silence,
      states)

  def readiness(self) -> Readiness:
    """Returns whether the task is ready, and why."""
    if self._evaluator() is not None:
      return Readiness(True, "follows the checkpoints")
    heartbeat = _heartbeat()
    if heartbeat is None:
      return Readiness(False, "starting")
    if heartbeat.silence is None:
      return Readiness(False, "the task that keeps the heartbeats has not answered yet")
    state = heartbeat.get("state")
    if state == "serving":
      return Readiness(True, "serves")
    figures = heartbeat.figures()
    if state == "training" and figures is not None and figures.is_open:
      blocked = heartbeat.get("blocked")
      if blocked:
        return Readiness(False, "stalled: it waits for %s" % blocked)
      if figures.stalled is not None:
        return Readiness(False, "stalled: its step has lasted %.0f s, and none of the last steps "
                         "took longer than %.3g s" % figures.stalled)
      return Readiness(True, "its session is open")
    return Readiness(False, "no session is open (%s)" % state)

  def _answer(self, environ, start_response):
    path = environ.get("PATH_INFO", "")
    if path == "/metrics":
      return self._metrics(environ, start_response)
    status, text = "404 Not Found", "see /metrics, /healthz and /readyz"
    if path == "/healthz":
      status, text = "200 OK", "ok"
    elif path == "/readyz":
      is_ready, text = self.readiness()
      status = "200 OK" if is_ready else "503 Service Unavailable"
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [(text + "\n").encode("utf-8")]


def _heartbeat():
  # No import here: a scrape may come while the main thread imports TensorFlow.
  latest = getattr(sys.modules.get("tf1ps.state.heartbeat"), "latest_heartbeat", None)
  return None if latest is None else latest()


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
  """Logs no requests, and ends a request whose client is silent or sends too much."""

  timeout = 10.0

  def setup(self):
    super().setup()
    self.rfile = _Head(self.rfile)

  def parse_request(self):
    is_whole = super().parse_request()
    self.server.hear(self.request)
    return is_whole

  def log_message(self, *unused):
    pass

class _Head:
  """The lines of a request, which end after a number of bytes."""

  def __init__(self, file):
    self._file, self._left = file, _LONGEST_HEAD
    self.close = file.close

  def readline(self, limit):
    line = self._file.readline(min(limit, self._left))
    self._left -= len(line)
    return line


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
  """A thread for each connection that has a place."""

  daemon_threads = True
  request_queue_size = 128  # a connection that finds no room in it tries again after a second

  def __init__(self, *args):
    self._lock = threading.Lock()
    self._open: Dict[socket.socket, bool] = {}  # {connection: has sent a request}, oldest first
    super().__init__(*args)

  def server_bind(self):
    socketserver.TCPServer.server_bind(self)  # without a question for the name of the host
    self.server_name, self.server_port = self.server_address[:2]
    self.setup_environ()

  def process_request(self, request, client_address):
    with self._lock:
      if len(self._open) >= PLACES:
        # Clients that do not read their answers can occupy only half of the places.
        is_heard = sum(self._open.values()) > PLACES // 2
        loser = next(each for each, heard in self._open.items() if heard == is_heard)
        del self._open[loser]
        with contextlib.suppress(OSError):
          loser.shutdown(socket.SHUT_RDWR)  # its thread closes it
      self._open[request] = False
    super().process_request(request, client_address)

  def hear(self, request):
    """Notes that the request of a connection has come."""
    with self._lock:
      if request in self._open:
        self._open[request] = True

  def shutdown_request(self, request):
    with self._lock:
      self._open.pop(request, None)
    super().shutdown_request(request)

  def handle_error(self, request, client_address):
    pass  # the client has left


def make_http_server(address: MetricsAddress, answer, what: str = "the metrics",
                     flag: str = "--metrics_port") -> wsgiref.simple_server.WSGIServer:
  """Listens at an address.

  Args:
    address: an address of this machine.
    answer: a WSGI application.
    what: the name of the served content, for errors.
    flag: the flag that has the address.

  Raises:
    MetricsError: the address is taken, or this machine does not have it.
  """
  kind = type("Server", (_Server,), {
    "address_family": socket.AF_INET6 if ":" in address.host else socket.AF_INET})
  try:
    return wsgiref.simple_server.make_server(address.host, address.port, answer, kind, _Handler)
  except (OSError, OverflowError) as error:
    raise MetricsError("%s cannot be served at %s: %s. Give another %s" % (
      what, address, error, flag)) from error
