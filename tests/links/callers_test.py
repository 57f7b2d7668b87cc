"""Connections that make no handshake, at the listener of a real sidecar in this process.

It listens at 127.0.0.2, its task at the same port of 127.0.0.1, and a caller may come from any
address of the loopback device.
"""
from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import threading

import pytest

from tests import harness, links_tasks, strangers
from tf1ps.compat import LINK_CLOSED, LINK_NO_SERVER, LINK_REFUSED
from tf1ps.links import Identity, callers, make_certificates, pump, sidecar, task_side
from tf1ps.monitoring.metrics_server import PLACES

pytestmark = pytest.mark.any_tensorflow
HOST, STRANGER = "127.0.0.3", "127.0.0.9"


class Task:
  """A task whose sidecar is in this process; it sends back what it gets.

  Attributes:
    address: of the sidecar, for others.
    sidecar: the object.
    said: the lines that it had the task log.
  """

  def __init__(self, folder, stack, listens=True):
    port = int(harness.addresses(1)[0].rsplit(":", 1)[1])
    self.address, self.said, self._folder = "127.0.0.2:%d" % port, [], folder
    self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    self._feed, feed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    self._proxy = stack.enter_context(socket.socket())
    self._proxy.bind(("127.0.0.1", 0))
    self._proxy.listen(4)
    self.sidecar = sidecar._Sidecar(control, feed, Identity(folder), os.getppid())
    self._server = stack.enter_context(socket.socket())
    self._server.bind(("127.0.0.1", port))
    if listens:
      self._server.listen(16)
    for function in (self.sidecar.run, self._serve, self._echo):
      thread = threading.Thread(target=function)
      thread.start()
      stack.callback(thread.join, harness.LIMIT)
    if listens:
      stack.callback(self._server.shutdown, socket.SHUT_RDWR)
    stack.callback(self._feed.shutdown, socket.SHUT_RDWR)
    stack.callback(self._control.close)
    self.ask({"listen": ["127.0.0.2", port]})
    self._links = stack.enter_context(contextlib.ExitStack())  # they end before the sidecar does

  def ask(self, request):
    sidecar.send(self._control, request)
    assert sidecar.receive(self._control)[0] == {"error": ""}

  def know(self, *hosts):
    """Makes hosts known to the sidecar."""
    self.ask({"hosts": hosts})
    found = self.sidecar._callers.hosts
    harness.wait_until(lambda: found.look_up() or found.addresses >= set(hosts),
                       what="the addresses")  # an earlier look-up may just be ending

  def _serve(self):
    sidecar.send(self._feed, {"proxy": True}, [self._proxy])
    with contextlib.suppress(OSError):
      while True:
        message, _ = sidecar.receive(self._feed)
        if message is None:
          return
        if "say" in message:
          self.said.append(message["say"])
        with contextlib.ExitStack() as spares:
          sidecar.send(self._feed, {}, [spares.enter_context(socket.socket())
                                        for _ in range(message.get("need", 0))])

  def _echo(self):
    with contextlib.suppress(OSError):  # it does not listen, or no more
      links_tasks.echo_all(self._server)

  def link(self, source):
    """Makes a link to the task as its peers do, and uses it; returns it."""
    host, port = self.address.split(":")
    connection = socket.create_connection(
      (host, int(port)), harness.LIMIT, source_address=(source, 0))
    link = links_tasks.context_of(self._folder).wrap_socket(self._links.enter_context(connection))
    self._links.enter_context(link)
    assert link.recv(1) == b"+"
    assert works(link)
    return link

  def call(self, address):
    """Calls an address through the proxy, as TensorFlow does; returns (status, connection)."""
    connection = self._links.enter_context(
      socket.create_connection(self._proxy.getsockname(), harness.LIMIT))
    connection.sendall(b"CONNECT %s HTTP/1.0\r\n\r\n" % address.encode())
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, connection


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return make_certificates(str(tmp_path_factory.mktemp("certs")), [["127.0.0.2"]], 1)[0]


@pytest.fixture
def places(monkeypatch):
  """Sets the number of places: of all, and of a stranger."""
  def set_places(every, of_a_stranger):
    monkeypatch.setattr(callers, "PLACES", every)
    monkeypatch.setattr(callers, "OF_A_STRANGER", of_a_stranger)

  return set_places


@pytest.fixture(autouse=True)
def nothing_ends_by_its_limit(set_timing):
  set_timing(callers, link_first_limit=100.0)
  for module in (pump, sidecar):
    set_timing(module, link_limit=100.0)


@pytest.fixture
def task(folder):
  with contextlib.ExitStack() as stack:
    yield Task(folder, stack)


def works(link):
  link.sendall(b"x")
  return link.recv(1) == b"x"


def closed(connections):
  """The places in a list of the connections that the other side has closed."""
  return [i for i, each in enumerate(connections) if select.select([each], [], [], 0)[0]]


def test_the_oldest_that_has_sent_nothing_leaves(task, places):
  places(4, 4)
  links = [task.link(HOST)]
  with strangers.half_open(task.address, 1, first=b"\x16") as first, \
      strangers.half_open(task.address, 3) as silent:
    links.append(task.link(HOST))
    assert closed(first + silent) == [1]
    with strangers.half_open(task.address, 2) as more:
      links.append(task.link("127.0.0.1"))
      assert closed(first + silent + more) == [1, 2, 3]
    assert all(map(works, links)), "a link was touched"
  harness.wait_until(lambda: task.said)
  assert task.said == ["refuses a connection from 127.0.0.1: it has sent nothing, and others need "
                       "its place"]


def test_where_all_have_sent_something_the_oldest_leaves(task, places):
  places(4, 4)
  before = task.sidecar._threads
  with strangers.half_open(task.address, 4, first=b"\x16") as first:
    harness.wait_until(lambda: task.sidecar._threads == before + 4)
    task.link(HOST)
    assert closed(first) == [0]
  harness.wait_until(lambda: task.sidecar._threads == before + 1)  # of the link
  assert task.said == ["refuses a connection from 127.0.0.1: it has not ended its handshake, and "
                       "others need its place"]


def test_an_address_that_is_no_host_of_the_job_has_a_part_of_the_places(task, places):
  places(20, 2)
  task.know(HOST)
  with strangers.half_open(task.address, 5, HOST) as ours, \
      strangers.half_open(task.address, 5, STRANGER) as first, \
      strangers.half_open(task.address, 2, "127.0.0.10") as second:
    task.link(STRANGER)  # with a certificate, such as an operator's tf1ps-status
    assert (closed(ours), closed(first), closed(second)) == ([], [0, 1, 2, 3], [])


def test_hosts_of_the_job_come_first(task, places):
  places(4, 4)
  task.know(HOST)
  with strangers.half_open(task.address, 2, HOST) as ours, \
      strangers.half_open(task.address, 2, STRANGER, b"\x16") as theirs:
    task.link(HOST)
    assert (closed(ours), closed(theirs)) == ([], [0])
    with strangers.half_open(task.address, 2, HOST) as more:
      with strangers.half_open(task.address, 1, STRANGER) as late:
        assert late[0].recv(1) == b""
      assert (closed(ours + more), closed(theirs)) == ([], [0, 1])
  harness.wait_until(lambda: "refuses a connection from 127.0.0.9: it has sent nothing, and hosts "
                     "of the job have all places" in task.said)


def test_hundreds_of_half_open_connections_from_where_the_job_is(task):
  task.know("127.0.0.1")
  threads = threading.active_count()
  with strangers.half_open(task.address, 300) as connections:
    task.link("127.0.0.1")
    assert closed(connections) == list(range(300 - callers.PLACES + 1))
    assert threading.active_count() < threads + 10, "each has a thread"


def test_who_sends_nothing_is_left_in_time(task, set_timing):
  with strangers.half_open(task.address, 1, first=b"\x16") as first:
    harness.wait_until(lambda: task.sidecar._threads == 1)
    set_timing(callers, link_first_limit=0.0)
    with strangers.half_open(task.address, 1) as silent:
      assert silent[0].recv(1) == b""
    assert not closed(first)
  harness.wait_until(lambda: task.said == [
    "refuses a connection from 127.0.0.1: it has sent nothing within 0 s"])


def test_names_of_hosts(monkeypatch):
  hosts = callers.Hosts()
  hosts.add(["127.0.0.7", "localhost", "x" * 70 + ".invalid"])
  hosts.look_up()
  harness.wait_until(lambda: hosts.addresses >= {"127.0.0.1", "127.0.0.7"}, what="the addresses")
  before = hosts.addresses
  monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: (_ for _ in ()).throw(OSError))
  hosts._look_up()
  assert hosts.addresses == before, "a name server that is away makes strangers of hosts"


def test_many_hosts_are_sent_by_parts(monkeypatch):
  asked = []
  monkeypatch.setattr(task_side, "_ask", lambda request, what: asked.append(request))
  task_side.listen("a", 1, ["%s%d" % ("x" * 250, i) for i in range(450)])
  assert [len(each.get("hosts", ())) for each in asked] == [200, 200, 50, 0]
  assert max(len(json.dumps(each)) for each in asked) < 1 << 16, "it is cut"
  assert asked[-1] == {"listen": ["a", 1]}


def test_a_call_is_answered_by_what_happened(task, folder):
  port = task.address.rsplit(":", 1)[1]
  with strangers.talker(b"") as closes:
    assert task.call(closes)[0] == LINK_CLOSED
  assert task.call(harness.addresses(1)[0])[0] == LINK_REFUSED
  with contextlib.ExitStack() as stack:
    absent = Task(folder, stack, listens=False)
    assert task.call(absent.address)[0] == LINK_NO_SERVER
    status, link = task.call("localhost:" + port)  # as a server of TensorFlow calls itself
    assert status == 200 and works(link)
  assert not task.said


def test_the_server_of_the_metrics_chooses_who_leaves_and_not_the_sidecar():
  assert sidecar._MOST_RELAYED >= 2 * PLACES, "else strangers keep scrapes out"


def test_relayed_connections_are_counted(folder, monkeypatch):
  monkeypatch.setattr(sidecar, "_MOST_RELAYED", 1)
  place, = harness.addresses(1)
  with contextlib.ExitStack() as stack:
    task = Task(folder, stack)
    task.ask({"relay": ["127.0.0.1", int(place.rsplit(":", 1)[1])],
              "inner": int(task.address.rsplit(":", 1)[1])})
    with strangers.half_open(place, 1) as first:
      assert works(first[0])
      with strangers.half_open(place, 1) as second:
        assert second[0].recv(1) == b""
      assert works(first[0])
