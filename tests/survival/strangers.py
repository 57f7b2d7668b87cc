"""Strangers at the ports of a job: who opens connections and is no task. Plain sockets alone.

`attack` runs every kind against one port, until its process is killed. `Recorder` records what a
task sends, for those that send it again. `Sizes` measures the processes that are attacked.
"""
from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import ssl
import struct
import threading
import time
from typing import Dict, List, NamedTuple

from tests import harness
from tests.cluster_tasks import say
from tf1ps.compat import find_directories

# What each kind does with a port.
KINDS = {
  "half-open": "opens 100 connections and sends nothing; they are renewed every 4 s",
  "flood": "opens and closes 100 connections every 2 s",
  "slow reader": "sends 20 whole requests through the smallest window; it reads nothing of a half "
                 "of them, and a byte per 0.1 s of the others; they are renewed every 10 s",
  "slow writer": "sends a byte per 0.1 s on 20 connections; they are renewed every 10 s",
  "garbage": "sends 1, 100, 10,000 and 1,000,000 random bytes, and the same behind a right start",
  "replay": "sends again what a task has sent",
}
GRPC, HTTP, TLS, LINE = "grpc", "http", "tls", "line"
# What each port speaks.
PORTS = {"ps": GRPC, "worker": GRPC, "ps, TLS": TLS, "worker, TLS": TLS, "metrics": HTTP,
         "page": HTTP, "status": LINE}
ANSWER_LIMIT = 10.0  # seconds until a port has answered whoever belongs there

_HELD, _FLOOD, _SLOW = 100, 100, 20
_LEAST = 4  # at the status socket, which answers one after the other, and only this user
MOST_HELD = _HELD + _FLOOD + 2 * _SLOW + 10  # connections that strangers have at a port at a time
SILENT_PER_SECOND = 75  # connections that are opened and send nothing, at a port
_SIZES = (1, 100, 10000, 1000000)
_LIMIT = 5.0  # seconds that a stranger waits
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SO_RCVBUFFORCE = 33  # of Linux: a receive buffer beyond the limit of the system
_REQUESTS = 50  # of a connection that speaks gRPC


class Port(NamedTuple):
  """A port of a process."""

  name: str  # of PORTS
  address: str  # "127.0.0.1:2222", or for the Unix socket at which it answers tf1ps-status "@" + it
  request: bytes  # a whole one of those that belong there
  recorded: bytes  # what a task has sent there


def attack(ports: List[Port]) -> None:
  """Attacks ports until this process is killed; says now and then how often, as JSON."""
  os.nice(5)  # the job has the processors before them
  counts = {port.name: dict.fromkeys(sorted(KINDS), 0) for port in ports}
  for port in ports:
    for kind in counts[port.name]:
      threading.Thread(target=_repeat, args=(_TURNS[kind], port, counts[port.name], kind),
                       daemon=True).start()
  while True:
    _pause(0.5)
    say(json.dumps(counts))


def _repeat(turn, port, counts, kind):
  chance = random.Random(kind)
  while True:
    try:
      counts[kind] += turn(port, chance)
    except OSError:  # its process is away, or has closed the connection
      _pause(0.1)


def _pause(seconds):
  threading.Event().wait(seconds)


def connect(address: str, window: int = 0) -> socket.socket:
  """Connects to a port, with a receive buffer of so many bytes; 0: the system's."""
  is_path = address.startswith("@")
  connection = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
  try:
    connection.settimeout(_LIMIT)
    if window:
      connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    host, _, port = address.rpartition(":")
    connection.connect(_path_of(address[1:]) if is_path else (host, int(port)))
    return connection
  except BaseException:
    _paths.clear()  # its process may be another one next time
    connection.close()
    raise


_paths: Dict[str, str] = {}  # of Unix sockets, by the address of their task; few, so none is closed


def _path_of(address):
  if address not in _paths:
    for folder in find_directories("status"):
      with contextlib.suppress(OSError), open(os.path.join(folder, "place")) as file:
        if file.read().startswith(address + " "):
          # The path of a socket has 107 bytes at most.
          _paths[address] = "/proc/self/fd/%d/socket" % os.open(folder, os.O_RDONLY)
  if address not in _paths:
    raise FileNotFoundError("%s has no socket for tf1ps-status" % address)
  return _paths[address]


def _several(stack, port, count, window=0):
  if PORTS[port.name] == LINE:
    count = _LEAST
  return [stack.enter_context(connect(port.address, window)) for _ in range(count)]


def _half_open(port, chance):
  with contextlib.ExitStack() as stack:
    found = _several(stack, port, _HELD)
    _pause(4.0)
    return len(found)


def _flood(port, chance):
  with contextlib.ExitStack() as stack:
    found = _several(stack, port, _FLOOD)
  _pause(2.0)
  return len(found)


def _read_slowly(port, chance):
  with contextlib.ExitStack() as stack:
    found = _several(stack, port, _SLOW, 1)
    for each in found:
      each.sendall(port.request)
      each.setblocking(False)
    until = time.monotonic() + 10.0
    while time.monotonic() < until:
      for each in found[::2]:
        with contextlib.suppress(OSError):
          each.recv(1)
      _pause(0.1)
    return len(found)


def _write_slowly(port, chance):
  with contextlib.ExitStack() as stack:
    found = _several(stack, port, _SLOW)
    until, position = time.monotonic() + 10.0, 0
    while time.monotonic() < until and position < len(port.request) - 1:
      for each in found:
        with contextlib.suppress(OSError):  # it was left
          each.sendall(port.request[position:position + 1])
      position += 1
      _pause(0.1)
    return len(found)


def _send_garbage(port, chance):
  size = chance.choice(_SIZES)
  start = chance.choice((b"", port.request[:max(1, len(port.request) // 2)], port.request))
  with connect(port.address) as connection:
    with contextlib.suppress(OSError):  # it was left, or is not read
      connection.sendall(start + bytes(bytearray(chance.getrandbits(8) for _ in range(100)))
                         * (size // 100 + 1))
  _pause(0.5)
  return 1


def _replay(port, chance):
  with connect(port.address) as connection:
    connection.sendall(port.recorded)
    connection.settimeout(0.5)
    with contextlib.suppress(OSError):
      while connection.recv(1 << 16):
        pass
  _pause(0.5)
  return 1


_TURNS = {"half-open": _half_open, "flood": _flood, "slow reader": _read_slowly,
          "slow writer": _write_slowly, "garbage": _send_garbage, "replay": _replay}


# Whole requests.


def grpc_request(count: int = _REQUESTS) -> bytes:
  """A connection of HTTP/2 with so many calls of a server's GetStatus."""
  fields = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
                    for name, value in (
    (b":method", b"POST"), (b":scheme", b"http"),
    (b":path", b"/tensorflow.WorkerService/GetStatus"), (b":authority", b"127.0.0.1"),
    (b"te", b"trailers"), (b"content-type", b"application/grpc")))
  calls = b"".join(
    _frame(1, 4, 2 * number + 1, fields) + _frame(0, 1, 2 * number + 1, b"\0" * 5)
    for number in range(count))
  return _PREFACE + _frame(4, 0, 0, b"") + calls


def _frame(kind, flags, stream, payload):
  return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
    "!I", stream) + payload


def client_hello() -> bytes:
  """The first bytes of TLS."""
  outgoing = ssl.MemoryBIO()
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname = False
  try:
    context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
  except ssl.SSLWantReadError:
    pass
  return outgoing.read()


# What the job's tasks say.


class Recorder(harness.Repeated):
  """Records what is sent to ports of this machine, in a block. Needs root."""

  def __init__(self, addresses):
    """Raises PermissionError without root."""
    super().__init__(0.0)
    self._ports = {int(address.rpartition(":")[2]): address for address in addresses}
    self._parts: Dict[tuple, Dict[int, bytes]] = {}  # by connection, then by place in the stream
    self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    # All that other tests send waits in it, too; what finds no room in it is a gap.
    self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
    self._socket.bind(("lo", 0x0800))
    self._socket.settimeout(0.2)

  def __exit__(self, *error):
    super().__exit__(*error)
    self._socket.close()

  def act(self):
    try:
      packet, place = self._socket.recvfrom(1 << 16)
    except socket.timeout:
      return
    if place[2] == 4 or packet[9] != socket.IPPROTO_TCP:  # each comes twice: leaving, arriving
      return
    rest = packet[(packet[0] & 15) * 4:struct.unpack("!H", packet[2:4])[0]]
    source, port, number = struct.unpack("!HHI", rest[:8])
    if port not in self._ports:
      return
    parts = self._parts.setdefault((port, source), {})
    if rest[13] & 2:  # SYN: the stream begins behind it
      parts[-1] = struct.pack("!I", (number + 1) % 2 ** 32)
    elif len(rest) > (rest[12] >> 4) * 4:
      parts.setdefault(number, rest[(rest[12] >> 4) * 4:])

  def longest(self, address: str) -> bytes:
    """What the connection to a port that has sent most has sent, from its start to a gap."""
    streams = [b""]
    for (port, _), parts in list(self._parts.items()):
      parts = dict(parts)
      if self._ports[port] != address or -1 not in parts:
        continue
      number, stream = struct.unpack("!I", parts[-1])[0], b""
      while number in parts:
        stream += parts[number]
        number = (number + len(parts[number])) % 2 ** 32
      streams.append(stream)
    return max(streams, key=len)


class Size(NamedTuple):
  """What a process has."""

  megabytes: float  # resident memory
  threads: int
  files: int  # open ones, connections too


def size_of(pid: int) -> Size:
  """Measures a process; raises OSError when it has ended."""
  with open("/proc/%d/status" % pid) as file:
    fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
  if "VmRSS" not in fields:
    raise ProcessLookupError("it has ended")
  return Size(int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]),
              len(os.listdir("/proc/%d/fd" % pid)))


class Sizes(harness.Repeated):
  """The largest sizes of processes, measured in a block."""

  def __init__(self, pids):
    """Takes a function that returns {name: process id} of those that are there now."""
    super().__init__(0.2)
    self._pids = pids
    self.largest: Dict[str, Size] = {}

  def act(self):
    for name, pid in self._pids().items():
      with contextlib.suppress(OSError):
        now = size_of(pid)
        self.largest[name] = Size(*map(max, now, self.largest.get(name, now)))
