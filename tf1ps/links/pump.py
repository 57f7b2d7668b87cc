"""Carries bytes between a plain and a TLS connection, both ways, until either ends.

Each pair has a thread. Both sockets are non-blocking, and a direction is not read while its bytes
still wait to be written: so memory is bounded, and a slow direction does not hold up the other.
TLS runs in memory, so that a call of the system moves many records of 16 KB.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Optional

from tf1ps.compat import TIMING

_BLOCK = 1 << 18  # bytes that are read at once
_IN = select.POLLIN
_KEEPALIVE_PROBES = 4  # without an answer; then the connection ends
_running = set()  # the pairs of this process
_ROOM = _BLOCK + (1 << 15)  # for them, and for a record of which the beginning had come before


class Plain:
  """A connection without TLS.

  Attributes:
    socket: non-blocking.
    pending: bytes that wait to be written, or None.
  """

  def __init__(self, connection: socket.socket):
    """Takes a connection over."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    self.socket = connection
    self.pending: Optional[memoryview] = None

  def take(self, room: memoryview) -> Optional[int]:
    """Reads into `room`; returns the number of bytes, 0 at the end, None if there are none yet."""
    try:
      return self.socket.recv_into(room, _BLOCK)
    except BlockingIOError:
      return None

  def take_rest(self, room: memoryview) -> Optional[int]:
    """Returns bytes that have been received already, like `take`."""
    return None

  def put(self, data: memoryview) -> None:
    """Writes bytes, or what can be written of them now; nothing may be pending."""
    try:
      sent = self.socket.send(data)
    except BlockingIOError:
      sent = 0
    if sent < len(data):
      self.pending = memoryview(data)[sent:]

  def flush(self) -> None:
    """Writes more of what is pending."""
    try:
      while self.pending is not None:
        rest = self.pending[self.socket.send(self.pending):]
        self.pending = rest if rest.nbytes else None
    except BlockingIOError:
      pass

  def close(self) -> None:
    """Writes what is pending within a limit, and closes."""
    try:
      if self.pending is not None:
        self.socket.settimeout(TIMING.link_end_limit)
        self.socket.sendall(self.pending)
      self.socket.shutdown(socket.SHUT_RDWR)
    except OSError:
      pass
    finally:
      self.socket.close()


def _keep_alive(connection: socket.socket) -> None:
  """Lets the kernel end an idle connection to a machine that has vanished."""
  connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
  if connection.family == socket.AF_UNIX:
    return
  for option, value in ((socket.TCP_KEEPIDLE, TIMING.link_idle_limit),
                        (socket.TCP_KEEPINTVL, TIMING.link_probe_interval),
                        (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)):
    connection.setsockopt(socket.IPPROTO_TCP, option, int(value))


class Sealed(Plain):
  """A connection over TLS."""

  def __init__(self, connection: socket.socket, context: ssl.SSLContext,
               host: Optional[str] = None):
    """Makes the handshake.

    Args:
      connection: to take over.
      context: the context, of a client if there is a `host`.
      host: that was dialled.

    Raises:
      ssl.SSLError, OSError: the handshake failed.
    """
    self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    self._tls = context.wrap_bio(
      self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
    connection.settimeout(TIMING.link_limit)
    self.socket = connection
    self.wait_for(self._tls.do_handshake)
    _keep_alive(connection)
    super().__init__(connection)
    self._raw = memoryview(bytearray(_BLOCK))

  def wait_for(self, call):
    """Calls a function of the TLS object until it has received what it needs; returns its result.

    Only before the connection is pumped. The limit is for all of it, however slowly bytes come.
    """
    until = time.monotonic() + TIMING.link_limit
    try:
      while True:
        try:
          return call()
        except ssl.SSLWantReadError:
          self.send_now()
          left = until - time.monotonic()
          if left <= 0:
            raise socket.timeout("timed out") from None
          self.socket.settimeout(left)
          data = self.socket.recv(1 << 14)
          if not data:
            raise ConnectionResetError("the other side has closed the connection") from None
          self._incoming.write(data)
    finally:
      self.send_now()
      self.socket.setblocking(False)

  def send_now(self):
    """Sends what TLS wants to send; only before the connection is pumped."""
    data = self._outgoing.read()
    if data:
      self.socket.settimeout(TIMING.link_limit)
      self.socket.sendall(data)

  def read_byte(self) -> bytes:
    """Waits for a byte; only before the connection is pumped."""
    return self.wait_for(lambda: self._tls.read(1))

  def write_byte(self, byte: bytes) -> None:
    """Sends a byte; only before the connection is pumped."""
    self.wait_for(lambda: self._tls.write(byte))

  def take(self, room):
    try:
      count = self.socket.recv_into(self._raw)
    except BlockingIOError:
      return None
    if not count:
      return 0
    self._incoming.write(self._raw[:count])
    return self.take_rest(room)

  def take_rest(self, room):
    count = 0
    try:
      while self._incoming.pending or self._tls.pending():
        count += self._tls.read(room.nbytes - count, room[count:])
    except ssl.SSLWantReadError:
      pass
    except ssl.SSLZeroReturnError:
      if not count:
        return 0
    if self._outgoing.pending:  # TLS itself answers
      self._append(self._outgoing.read())
      self.flush()
    return count or None

  def put(self, data):
    self._tls.write(data)
    super().put(self._outgoing.read())

  def _append(self, data: bytes):
    before = b"" if self.pending is None else bytes(self.pending)
    self.pending = memoryview(before + data)

  def close(self):
    try:
      self._tls.unwrap()
    except (ssl.SSLError, OSError):
      pass
    if self._outgoing.pending:
      self._append(self._outgoing.read())
    super().close()


def pump(left: Plain, right: Plain) -> None:
  """Carries bytes both ways until a side ends; closes both."""
  pair = _Pump(left, right)
  _running.add(pair)
  try:
    pair.run()
  except OSError:  # an ssl.SSLError, too
    pass
  finally:
    left.close()
    right.close()
    _running.discard(pair)


def is_at_rest() -> bool:
  """Whether no pair of this process holds bytes that it has still to carry."""
  return not any(pair.has_bytes() for pair in list(_running))


class _Pump:
  """The loop of a pair."""

  def __init__(self, left, right):
    self._poll = select.poll()
    self._masks = {}
    self._sides = {left.socket.fileno(): (left, right, memoryview(bytearray(_ROOM))),
                   right.socket.fileno(): (right, left, memoryview(bytearray(_ROOM)))}

  def has_bytes(self) -> bool:
    """Whether bytes wait in it, or at it; called by another thread."""
    sides, poll = [side for side, _, _ in self._sides.values()], select.poll()
    try:
      for side in sides:
        poll.register(side.socket, select.POLLIN)
      return any(side.pending is not None for side in sides) or bool(poll.poll(0))
    except (OSError, ValueError):  # it has just ended
      return False

  def run(self):
    for side, other, room in self._sides.values():
      count = side.take_rest(room)
      if count:
        other.put(room[:count])
    poll, sides = self._poll.poll, self._sides
    while True:
      for number, (side, other, _) in sides.items():
        self._watch(number, (_IN if other.pending is None else 0)
                    | (0 if side.pending is None else select.POLLOUT))
      for number, event in poll():
        side, other, room = sides[number]
        if event & select.POLLOUT:
          side.flush()
        if event & ~select.POLLOUT and other.pending is None:
          count = side.take(room)
          if count == 0:
            return
          if count:
            other.put(room[:count])

  def _watch(self, number, mask):
    if self._masks.get(number, 0) == mask:
      return
    if not mask:
      self._poll.unregister(number)
    else:
      self._poll.register(number, mask)
    self._masks[number] = mask
