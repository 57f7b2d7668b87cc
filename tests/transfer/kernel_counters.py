"""What the kernel counts of the bytes that TCP connections of this machine have carried."""
from __future__ import annotations

import socket
import struct

_SOCK_DIAG, _DUMP, _DONE, _ERROR = 20, 0x301, 3, 2
_ESTABLISHED, _INFO = 1, 2


def carried(ports):
  """The bytes that servers at these ports have carried, over the connections that are open.

  Args:
    ports: a list of ports.

  Returns:
    {port: (received, sent)}, payload of TCP that has been acknowledged.

  Raises:
    OSError: the kernel does not tell.
  """
  counts = {port: (0, 0) for port in ports}
  for family in (socket.AF_INET, socket.AF_INET6):
    for port, received, sent in _connections(family):
      if port in counts:
        counts[port] = counts[port][0] + received, counts[port][1] + sent
  return counts


def _connections(family):
  """Yields (own port, bytes received, bytes sent and acknowledged) of each connection."""
  request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0,
                        1 << _ESTABLISHED) + bytes(48)
  header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG, _DUMP, 1, 0)
  with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:  # NETLINK_SOCK_DIAG
    diag.settimeout(60.0)
    diag.sendto(header + request, (0, 0))
    while True:
      data = diag.recv(1 << 20)
      while data:
        length, kind = struct.unpack_from("=IH", data)
        if kind == _DONE:
          return
        if kind == _ERROR:
          raise OSError("the kernel does not tell what connections have carried")
        yield from _connection(data[16:length])
        data = data[(length + 3) & ~3:]


def _connection(message):
  port, = struct.unpack_from("!H", message, 4)
  attributes = message[72:]
  while len(attributes) >= 4:
    length, kind = struct.unpack_from("=HH", attributes)
    if kind == _INFO and length >= 4 + 136:
      sent, received = struct.unpack_from("=QQ", attributes, 4 + 120)
      yield port, received, sent
    attributes = attributes[max(4, (length + 3) & ~3):]
