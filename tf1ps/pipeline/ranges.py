"""Ranges of the data, handed out one by one: what was claimed, by whom, and what is done.

The data are a number of ranges, in this order, an epoch after the other: files, or blocks of
records. `Ranges` is the state of the handing out, as JSON, so that it can be kept on a server and
in a file; it knows nothing of either.

1. `claim` hands out the next range, first those that came back.
2. `done` is said when the update of a range's last record was applied.
3. `give_back` returns what a worker holds that has gone; what it had trained on of it counts as
   trained on again.

A claim is one number: the epoch, times 2^32, plus the range's number.
"""

from __future__ import annotations

import zlib
from typing import Dict, Iterable, List, Optional, Set

import numpy as np

EPOCH = 2 ** 32  # the claims of two epochs are so far apart


def claim_of(epoch: int, number: int) -> int:
  """The claim of a range in an epoch, both from 0."""
  return epoch * EPOCH + number


def shuffled(claim: int, count: int, seed: int) -> int:
  """The range that a claim stands for where each epoch has an order of its own.

  Args:
    claim: the claim.
    count: of the ranges.
    seed: of the orders, the same for all workers.
  """
  epoch, number = divmod(claim, EPOCH)
  order = np.random.RandomState(zlib.crc32(b"%d %d" % (seed, epoch))).permutation(count)
  return claim_of(epoch, int(order[number]))


class Ranges:
  """The state of the handing out.

  Attributes:
    value: the state, JSON: digest (of the data), epochs, count (of ranges), next (the claim
      that was never handed out), out (by claim: who holds it, and how many examples of it that
      worker has trained on), back (claims that came back), again (examples trained on
      in ranges that came back).
  """

  def __init__(self, value: dict):
    """Looks at a state, or with `Ranges.new` makes one; methods change `value` in place."""
    self.value = value

  @classmethod
  def new(cls, digest: str, count: int, epochs: Optional[int]) -> "Ranges":
    """The state before the first claim.

    Args:
      digest: of what the ranges are, so that states of other data are told from it.
      count: how many ranges there are.
      epochs: how often all are handed out; None: without end.
    """
    return cls(dict(digest=digest, count=count, epochs=epochs, next=0, out={}, back=[], again=0))

  def claim(self, owner: int, epoch: Optional[int] = None) -> Optional[int]:
    """Hands out a range.

    Args:
      owner: the worker's index.
      epoch: of which alone it may be, or None.

    Returns:
      The claim, or None if there is nothing to hand out.
    """
    value = self.value
    found = next((c for c in value["back"] if epoch in (None, c // EPOCH)), None)
    if found is not None:
      value["back"].remove(found)
    elif self._is_unclaimed() and epoch in (None, self._next() // EPOCH):
      found = self._next()
      value["next"] = found + 1
    else:
      return None
    value["out"][str(found)] = [owner, 0]
    return found

  def done(self, owner: int, claims: Iterable[int]) -> None:
    """Notes that ranges are done; those that the worker no longer holds are passed over."""
    for claim in claims:
      if self.value["out"].get(str(claim), [None])[0] == owner:
        del self.value["out"][str(claim)]

  def note_trained(self, owner: int, examples: Dict[int, int]) -> None:
    """Notes how many examples a worker has trained on so far, by the claims that it holds."""
    for claim, trained in examples.items():
      held = self.value["out"].get(str(claim))
      if held is not None and held[0] == owner:
        held[1] = trained

  def give_back(self, owner: int, held: Iterable[int] = ()) -> List[int]:
    """Returns the claims of a worker, but for those that it still holds.

    Args:
      owner: the worker's index.
      held: the claims that stay its.

    Returns:
      Those that came back.
    """
    value, held = self.value, set(held)
    back = [int(c) for c, (o, _) in value["out"].items() if o == owner and int(c) not in held]
    for claim in back:
      value["again"] += value["out"].pop(str(claim))[1]
    value["back"] = sorted(value["back"] + back)
    return back

  @property
  def owners(self) -> Set[int]:
    """The workers that hold claims."""
    return {owner for owner, _ in self.value["out"].values()}

  @property
  def has_more(self) -> bool:
    """Whether there is something to hand out."""
    return bool(self.value["back"]) or self._is_unclaimed()

  @property
  def are_done(self) -> bool:
    """Whether all ranges of all epochs are."""
    return not self.has_more and not self.value["out"]

  @property
  def again(self) -> int:
    """Examples that were trained on in ranges that came back, as far as that was noted."""
    return self.value["again"]

  def _next(self) -> int:
    """The claim that follows: of the next epoch, where this one's are all handed out."""
    value = self.value
    epoch, number = divmod(value["next"], EPOCH)
    if number >= value["count"]:
      return claim_of(epoch + 1, 0)
    return value["next"]

  def _is_unclaimed(self) -> bool:
    epochs = self.value["epochs"]
    return self.value["count"] > 0 and (epochs is None or self._next() // EPOCH < epochs)
