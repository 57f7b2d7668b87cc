"""The limits that every kind of session has, and their defaults."""

from __future__ import annotations

from typing import Optional

from tf1ps.compat import START_TIMEOUT as START_TIMEOUT

# What the chief restores when a ps was lost: the last checkpoint on all ps, or on that one alone.
ALL, LOST_ONLY = PS_RECOVERIES = ("all", "lost_only")
END_TIMEOUT = 300.0  # seconds without a step of any missing worker until the chief gives up


def check_limits(**limits: Optional[float]) -> None:
  """Raises ValueError for a limit that is neither None nor a positive number of seconds."""
  for name, value in limits.items():
    if value is not None and not value > 0:
      raise ValueError("%s must be a positive number of seconds, got %r" % (name, value))
