"""One "host:port" address: taken apart, or refused with the reason.

TensorFlow itself checks little of it. It takes a port above 65535 modulo 65536, "+2222" on some
versions only, and an address without a port reaches the user as an error of the server's start.
Here each of them is refused before anything starts.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from tf1ps.compat import Error

MAX_PORT = 65535


class ClusterError(Error, ValueError):
  """The description of the job is wrong; the message says which value and what would be right."""


class Address(NamedTuple):
  """The parts of one address."""
  host: str  # a host's name, an IPv4 address, or an IPv6 address without its brackets
  port: int  # 0 lets the system choose one


def parse_address(text: str, source: str, allow_zero: bool = False) -> Address:
  """Takes a "host:port" address apart.

  Args:
    text: The address. An IPv6 host stands in brackets: "[::1]:2222".
    source: Where the address was written, for the error: "--ps_hosts", "TF_CONFIG cluster.ps[0]".
    allow_zero: Whether port 0 is allowed, with which the system chooses a free port.

  Returns:
    An `Address`.

  Raises:
    ClusterError: If the text is anything else than a host and a port.
  """
  if not isinstance(text, str):
    raise ClusterError(f'{source}: {text!r} is no text: write "host:port"')
  if not text:
    raise ClusterError(f"{source}: an address is empty: write host:port, one comma between two")
  if re.search(r"\s", text):
    raise ClusterError(f"{source}: {text!r} has a blank in it: write host:port without blanks")
  if "://" in text:
    rest = text.split("://", 1)[1].split("/", 1)[0]
    raise ClusterError(f'{source}: "{text}" is a URL: write the address alone, "{rest}"')
  if "/" in text:
    raise ClusterError(f'{source}: "{text}" has a "/" in it: write host:port')
  host, port = _split(text, source)
  if not host:
    raise ClusterError(f'{source}: "{text}" has no host: write host:port, as in "localhost{text}"')
  return Address(host, _parse_port(port, text, source, allow_zero))


def _split(text, source):
  """Splits the text into a host without brackets and the text of a port."""
  if text.startswith("["):
    host, bracket, rest = text[1:].partition("]")
    if not bracket or not _is_ipv6(host):
      raise ClusterError(f'{source}: "{text}" is no IPv6 address in brackets: write "[::1]:2222"')
    if not rest.startswith(":"):
      raise ClusterError(f'{source}: "{text}" has no port: write "[{host}]:2222"')
    return host, rest[1:]
  if text.count(":") > 1:
    if _is_ipv6(text):
      raise ClusterError(f'{source}: "{text}" is an IPv6 address without brackets or a port: '
                         f'write "[{text}]:2222"')
    raise ClusterError(f'{source}: "{text}" has more than one ":": write host:port, with commas '
                       "between addresses and an IPv6 host in brackets")
  host, colon, port = text.partition(":")
  if not colon:
    raise ClusterError(f'{source}: "{text}" has no port: write host:port, as in "{text}:2222"')
  return host, port


def _is_ipv6(host):
  try:
    ipaddress.IPv6Address(host.partition("%")[0])  # what follows "%" names an interface
  except ValueError:
    return False
  return True


def _parse_port(port, text, source, allow_zero):
  """Returns the port as a number."""
  if not port:
    raise ClusterError(f'{source}: "{text}" has no port: write host:port, as in "{text}2222"')
  if not re.fullmatch("[0-9]+", port):
    raise ClusterError(f'{source}: the port of "{text}" is no number: write host:port with a port '
                       f"from 1 to {MAX_PORT}")
  number = int(port)
  if number > MAX_PORT:
    raise ClusterError(f'{source}: the port of "{text}" is above {MAX_PORT} (TensorFlow would '
                       f"listen on {number % (MAX_PORT + 1)}): take one from 1 to {MAX_PORT}")
  if number == 0 and not allow_zero:
    raise ClusterError(f'{source}: the port of "{text}" is 0, so that the system would choose one '
                       f"that no other task knows: take one from 1 to {MAX_PORT}")
  return number
