"""Tasks with links, as real processes in real namespaces; none of them needs TensorFlow."""
from __future__ import annotations

import datetime
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading

import pytest

from tests import harness, links_tasks, needs
from tf1ps.launch import TLS_VARIABLE
from tf1ps.links import (
  Identity,
  NamespaceError,
  authority,
  check_namespaces,
  make_certificates,
  pump,
)

pytestmark = pytest.mark.any_tensorflow


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """The folders of a certificate for this machine, of one for another host, and of a stranger's."""
  try:
    check_namespaces()
  except NamespaceError as error:
    needs.skip("namespaces", error)
  folder = str(tmp_path_factory.mktemp("certs"))
  ours, elsewhere = make_certificates(folder, [["127.0.0.1"], ["10.0.0.1"]], 1)
  stranger, = make_certificates(os.path.join(folder, "of another job"), [["127.0.0.1"]], 1)
  return ours, elsewhere, stranger


@pytest.fixture
def start(start):
  """Starts tasks inside of their links, as a launcher does: only root may enter beside threads."""
  def start_one(name, function, first, *args, **env):
    inside = {TLS_VARIABLE: first} if os.path.isdir(first) else {}
    return start(name, function, first, *args, **dict(inside, **env))

  return start_one


def shake(address, context):
  """What a stranger gets: the bytes that the server sends, or the reason of the error."""
  host, port = address.rsplit(":", 1)
  with socket.create_connection((host, int(port)), harness.LIMIT) as connection:
    try:
      with context.wrap_socket(connection) as link:
        link.sendall(b"x")
        return link.recv(10)
    except ssl.SSLError as error:
      return error.reason or str(error)
    except ConnectionResetError:
      return "reset"


# An editable installation is found by a hook of the import, and is in no folder of sys.path.
INSTALLED_ELSEWHERE = """
import sys
sys.path.insert(0, %r)
import tf1ps
sys.path.pop(0)
from tf1ps import links
links.enter(%r)
links.listen("127.0.0.1", %d)
print("up")
"""


def test_a_package_that_is_not_in_a_folder_of_the_path(folders, tmp_path):
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  port = int(harness.addresses(1)[0].rsplit(":", 1)[1])
  env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
  done = subprocess.run(
    [sys.executable, "-S", "-c", INSTALLED_ELSEWHERE % (root, folders[0], port)], env=env,
    cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
  assert done.stdout == "up\n"


def test_a_stranger_that_sends_a_byte_now_and_then_is_left_in_time(folders, set_timing):
  set_timing(pump, link_limit=0.5)
  ours, far = socket.socketpair()
  ended = threading.Event()

  def drip():
    try:
      # The head of the longest TLS record: it is sent for half an hour, and no test lasts so long.
      for byte in b"\x16\x03\x01\x40\x00" + b"\x01" * 0x4000:
        far.sendall(bytes([byte]))
        if ended.wait(0.1):
          return
    except OSError:
      pass

  thread = threading.Thread(target=drip)
  thread.start()
  try:
    with ours, pytest.raises(socket.timeout):
      pump.Sealed(ours, Identity(folders[0]).contexts()[1])
  finally:
    ended.set()
    thread.join(harness.LIMIT)
    far.close()


def test_the_kernel_notices_that_the_machine_of_an_idle_link_has_vanished(folders):
  client, server = Identity(folders[0]).contexts()
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    ours = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
  thread = threading.Thread(target=pump.Sealed, args=(far, server))
  thread.start()
  with ours:
    pump.Sealed(ours, client, "127.0.0.1")
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
  thread.join(harness.LIMIT)
  far.close()


def test_a_sidecar_that_does_not_answer(start, folders):
  task = start("stopped", links_tasks.ask_a_stopped_sidecar, folders[0])
  said = task.wait_for("no: ")
  process, = re.findall(r"no: the sidecar \(process (\d+)\) gave no answer within 0.5 s", said)
  os.kill(int(process), signal.SIGKILL)  # a stopped one does not see the end of its task
  assert task.wait() == 1


def test_two_tasks_and_strangers(start, folders):
  ours, elsewhere, stranger = folders
  server, absent, plain, wrong_host = harness.addresses(4)
  hidden, = (int(each.rsplit(":", 1)[1]) for each in harness.addresses(1))
  echo = start("echo", links_tasks.echo, ours, server, hidden)
  echo.wait_for("up")
  start("plain", links_tasks.serve_plainly, plain).wait_for("up")
  # All that a task sends comes back, and the proxy says why where it reaches nobody.
  other = start("elsewhere", links_tasks.echo, elsewhere, wrong_host)
  other.wait_for("up")
  calls = start("calls", links_tasks.call, ours, server, absent, plain, wrong_host,
                "no-such-host.invalid:1", "%s.invalid:1" % ("x" * 70), "127.0.0.1:65536", "nothing")
  calls.wait_for("done")
  said = [line.rpartition(":")[2].split() for line in calls.lines if not line.startswith("the ")]
  assert [each[1] for each in said[:-1]] == [
    "echo", "502", "497", "495", "404", "404", "405", "405"]
  for text in ("has no link to %s: it does not speak TLS" % plain,
               "has no link to %s: its certificate does not name that host" % wrong_host):
    calls.wait_for(text)
  # A stranger gets nothing, and the task says so.
  assert isinstance(shake(server, links_tasks.context_of()), str)
  assert isinstance(shake(server, links_tasks.context_of(stranger)), str)
  echo.wait_for("the sidecar refuses a connection from")
  echo.wait_for("it has no certificate")
  echo.wait_for("is not signed by the authority in ca.pem")
  # Nobody reaches what the task listens on beside its own port.
  with pytest.raises(ConnectionRefusedError):
    socket.create_connection(("127.0.0.1", hidden), harness.LIMIT)
  # A task with a stranger's certificate is refused on both sides.
  wrong = start("wrong", links_tasks.call, stranger, server)
  wrong.wait_for(server + " 495")


def test_a_task_reaches_nothing_without_its_proxy(start, folders):
  with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    task = start("task", links_tasks.probe_outside, folders[0],
                 "127.0.0.1:%d" % server.getsockname()[1])
    assert task.wait() == 0
    assert task.lines == ["not reached: Connection refused"]


def test_the_last_bytes_of_a_task_arrive(start, folders):
  address, = harness.addresses(1)
  counts = start("count", links_tasks.count, folders[0], address)
  counts.wait_for("up")
  assert start("sends", links_tasks.send_and_end, folders[0], address, 4000000).wait() == 0
  counts.wait_for("bytes 4000000")


def test_the_last_bytes_of_the_first_process_of_a_container_arrive(start, folders):
  address, = harness.addresses(1)
  counts = start("count", links_tasks.count, folders[0], address)
  counts.wait_for("up")
  sends = start("sends", links_tasks.send_as_first_process, folders[0], address, 4000000)
  assert sends.wait() == 0
  if "no namespace" in sends.output:
    needs.skip("namespaces")
  assert sends.lines == ["sent as process 1"]
  counts.wait_for("bytes 4000000")


def test_a_relayed_port_a_taken_port_and_the_end_of_a_sidecar(start, folders):
  address, relayed = harness.addresses(2)
  port = int(relayed.rsplit(":", 1)[1])
  task = start("task", links_tasks.echo, folders[0], address, 0, port)
  sidecar = int(task.wait_for("up").split()[1])
  with socket.create_connection(("127.0.0.1", port), harness.LIMIT) as connection:
    connection.sendall(b"metrics")
    assert connection.recv(100) == b"metrics"
  second = start("second", links_tasks.echo, folders[0], address)
  assert second.wait_for("no:") == (
    "no: the sidecar cannot listen at %s: Address already in use True" % address)
  # Signals do not end a sidecar: its task still saves.
  os.kill(sidecar, signal.SIGTERM)
  os.kill(sidecar, signal.SIGINT)
  start("calls", links_tasks.call, folders[0], address, 10).wait_for("echo")
  os.kill(sidecar, signal.SIGKILL)
  assert task.wait() == 1
  assert task.last_line == (
    "tf1ps: its sidecar (process %d) was killed by SIGKILL, and without it no other task is "
    "reached" % sidecar)


def test_a_sidecar_ends_with_its_task_and_the_port_is_free(start, folders):
  address, = harness.addresses(1)
  task = start("task", links_tasks.echo, folders[0], address)
  sidecar = int(task.wait_for("up").split()[1])
  task.kill()
  start("again", links_tasks.echo, folders[0], address).wait_for("up")
  harness.wait_until(lambda: not os.path.exists("/proc/%d" % sidecar), what="the sidecar's end")


def test_certificates_are_renewed_while_a_task_runs(start, tmp_path, folders):
  folder, = make_certificates(str(tmp_path), [["127.0.0.1"]], 1)
  address, = harness.addresses(1)
  host, port = address.rsplit(":", 1)
  task = start("task", links_tasks.echo, folder, address)
  task.wait_for("up")

  def certificate():
    with socket.create_connection((host, int(port)), harness.LIMIT) as connection:
      with links_tasks.context_of(folder).wrap_socket(connection) as link:
        return link.getpeercert(binary_form=True)

  before = certificate()
  assert certificate() == before
  make_certificates(str(tmp_path), [["127.0.0.1"]], 2)
  assert certificate() != before
  start("calls", links_tasks.call, folder, address).wait_for("echo")
  # Files that cannot be used leave the last good ones in use.
  good = certificate()
  (tmp_path / "127.0.0.1" / "ca.pem").write_text("half a file")
  with socket.create_connection((host, int(port)), harness.LIMIT) as connection:
    with links_tasks.context_of().wrap_socket(connection) as link:
      assert link.getpeercert(binary_form=True) == good
  task.wait_for("goes on with the certificate that it had")


def test_a_task_says_that_its_certificate_ends_soon(start, tmp_path, folders, monkeypatch):
  folder, = make_certificates(str(tmp_path), [["127.0.0.1"]], 1)
  monkeypatch.setattr(authority, "_BACKDATED", datetime.timedelta(days=1))
  library = authority._Library()
  library.issue(folder, ["127.0.0.1"], 0.1, library.authority(str(tmp_path / "authority")))
  start("task", links_tasks.echo, folder, harness.addresses(1)[0]).wait_for(
    " GMT, in 2.4 hours: replace it by tf1ps-certs before")


@pytest.mark.slow
def test_without_root(folders, tmp_path):
  """A process without the right to make a namespace makes a user namespace as well."""
  code = ("import socket; from tf1ps import links; links.enter(%r)\n"
          "print(socket.if_nameindex(), open('/proc/self/stat').read() != '')" % (folders[0],))
  command = ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-c", code]
  try:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, timeout=60)
  except OSError:
    needs.skip("setpriv")
  if "setpriv" in done.stdout or "not permit" in done.stdout:
    needs.skip("setpriv", done.stdout)
  assert done.returncode == 0 and done.stdout == "[(1, 'lo')] True\n", done.stdout
