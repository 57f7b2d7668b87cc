"""The address of --metrics_port, and its library. Nothing here imports TensorFlow."""

from __future__ import annotations

import re
from typing import NamedTuple

from tf1ps.compat import Error

LOOPBACK = "127.0.0.1"


class MetricsError(Error, RuntimeError):
  """The metrics of a task cannot be served."""


class MetricsAddress(NamedTuple):
  """The address at which a task serves its metrics."""

  host: str  # without the brackets of an IPv6 address
  port: int

  def __str__(self):
    return "%s:%d" % ("[%s]" % self.host if ":" in self.host else self.host, self.port)


def parse_metrics_address(text: str) -> MetricsAddress:
  """Parses --metrics_port: a port of this machine, or an address and a port; raises ValueError."""
  match = re.fullmatch(r"(?:(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+)):)?(\d{1,5})", text)
  if match is None or not 0 < int(match.group(3)) < 65536:
    raise ValueError("must be a port from 1 to 65535, or HOST:PORT")
  return MetricsAddress(match.group(1) or match.group(2) or LOOPBACK, int(match.group(3)))


def check_prometheus_client() -> None:
  """Raises MetricsError if prometheus_client is missing."""
  try:
    import prometheus_client as unused_client  # noqa: F401
  except ImportError as error:
    raise MetricsError(
      '--metrics_port needs the package prometheus_client: pip install "tf1ps[metrics]"'
    ) from error
