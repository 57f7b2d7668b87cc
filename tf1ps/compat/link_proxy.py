"""What a sidecar's proxy tells its task, and how gRPC reports it (see the room links)."""

from __future__ import annotations

import re
from typing import Optional

LINK_PROXY = "TF1PS_LINK_PROXY"  # the environment variable with the proxy's URL; unset: no links

# The statuses with which the proxy refuses a call. gRPC's error has the number and nothing more.
LINK_NO_HOST = 404
LINK_CERTIFICATE = 495  # the other side's certificate is refused
LINK_REFUSES_US = 496  # the other side refuses this task's certificate
LINK_NO_TLS = 497  # the other side does not speak TLS
LINK_REFUSED = 502  # nobody listens there
LINK_CLOSED = 503  # the other side closes the connection before the handshake has ended
LINK_UNREACHABLE = 504
LINK_NO_SERVER = 521  # the other side's task does not listen
_STATUS = re.compile(r"HTTP proxy returned response code (\d+)")


def link_status(details: str) -> Optional[int]:
  """Returns the status of the proxy in the text of a gRPC error; None if there is none."""
  status = _STATUS.search(details)
  return int(status.group(1)) if status else None
