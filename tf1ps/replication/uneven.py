"""The policies of `--on_uneven`: the effect of the end of a replica's data on synchronous rounds.

A new policy is a row of `UNEVEN_POLICIES`; a new effect is a field of `UnevenPolicy` and its
use in rounds.py. Importing this module does not import TensorFlow.
"""

from __future__ import annotations

from typing import NamedTuple


class UnevenPolicy(NamedTuple):
  """The effects of the end of a replica's data."""

  ends_all: bool = False  # training ends for all replicas
  pads: bool = False  # each later round counts the replica as arrived, without a gradient
  shrinks: bool = False  # each later round waits for one gradient fewer, as for a lost replica
  repeats: bool = False  # the replica begins again, until all have gone through their data


STOP_ALL, PAD, SHRINK, REPEAT = "stop_all", "pad", "shrink", "repeat"
UNEVEN_POLICIES = {
  STOP_ALL: UnevenPolicy(ends_all=True),
  PAD: UnevenPolicy(pads=True),
  SHRINK: UnevenPolicy(shrinks=True),
  # A replica that leaves the loop, at the end or earlier, ends training for all.
  REPEAT: UnevenPolicy(ends_all=True, repeats=True),
}
ON_UNEVEN = tuple(UNEVEN_POLICIES)
