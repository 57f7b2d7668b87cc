"""Serves /metrics, /healthz and /readyz of one task over HTTP, for --metrics_port.

It listens on 127.0.0.1 unless the flag names another address. It is for reading alone, and asks
nobody for a password. /healthz answers as long as the process does. /readyz answers 200 when

a worker     has an open session, and its step lasts no longer than those before (`stall_watch`);
a ps         has its server up, and the task that keeps the heartbeats has answered it;
an evaluator follows its directory;

else 503, with the reason.
"""

from __future__ import annotations

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


class Readiness(NamedTuple):
  """Whether a task is ready."""

  is_ready: bool
  reason: str


class MetricsServer:
  """The server of one task.

  Attributes:
    url: of the metrics: "http://127.0.0.1:9100/metrics".
  """

  def __init__(self, address: MetricsAddress, job: str, role: str, index: int):
    """Listens; requests are answered at once.

    Args:
      address: where to listen.
      job: the job of the task: "worker".
      role: its role: "chief", "worker", "ps" or "evaluator".
      index: its index in the job.

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
    try:
      self._server = wsgiref.simple_server.make_server(
        address.host, address.port, self._answer, _server_class(address.host), _Quiet)
    except (OSError, OverflowError) as error:
      raise MetricsError("the metrics cannot be served at %s: %s. Give another "
                                 "--metrics_port" % (address, error)) from error
    self.url = "http://%s/metrics" % (address,)
    threading.Thread(
      target=self._server.serve_forever, daemon=True, name="tf1ps: metrics").start()

  def show_evaluator(self, figures: Callable[[], object]) -> None:
    """Shows the figures of an evaluator: `figures` returns `EvaluatorFigures`, or None."""
    self._evaluator = figures

  def close(self) -> None:
    """Ends the server."""
    self._server.shutdown()
    self._server.server_close()

  def look(self) -> metrics.View:
    """Returns what a scrape sees now."""
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
        return Readiness(False, "stalled: its step has lasted %.0f s, and none of the last ones "
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
  # Not imported here: the main thread imports TensorFlow while a scrape may come.
  latest = getattr(sys.modules.get("tf1ps.state.heartbeat"), "latest_heartbeat", None)
  return None if latest is None else latest()


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
  """Logs no requests, and ends one whose client is silent."""

  timeout = 10.0

  def log_message(self, *unused):
    pass


def _server_class(host: str):
  class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    """A thread for each request."""

    daemon_threads = True
    address_family = _family(host)

    def server_bind(self):
      socketserver.TCPServer.server_bind(self)  # without a question for the name of the host
      self.server_name, self.server_port = host, self.server_address[1]
      self.setup_environ()

    def handle_error(self, request, client_address):
      pass  # the client has left

  return Server


def _family(host: str):
  return socket.AF_INET6 if ":" in host else socket.AF_INET
