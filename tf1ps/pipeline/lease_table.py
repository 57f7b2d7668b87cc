"""The leases of all workers on ranges of the data (`--shard=dynamic`), in a table on a server.

The data consist of ranges: files, or blocks of records. Each epoch hands out every range once.
`LeaseState` holds the state as JSON, so that a server and a file can keep it:

  state  in the table      next state
  new    from `next` on    out: `grant`
  back   in `back`         out: `grant`, before new ones
  out    in `out`          done: `done`, after the update of the range's last record was applied;
                           back: `return_leases` of a worker that left or is lost
  done   nowhere           (none)

The examples of a returned lease that the worker already trained on are trained on again. The state
counts these examples.

`LeaseTable` keeps this state in a control record, for all workers of a job:

1. When the job's state begins, the chief writes the table: a new table, or the table from the
   checkpoint (`begin`). Each beginning starts an era.
2. A session joins the present era (`attach`). A session of an earlier era cannot change the table,
   because its updates may be lost.
3. With each checkpoint the chief saves a copy (`to_json`), before the variables are saved. So the
   updates of all done ranges in the copy are in the checkpoint.

A lease is a number: epoch * 2^32 + the lease's place in the order of the epoch, from 0.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import zlib
from typing import Callable, Dict, Iterable, List, Optional, Set

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.state import ControlError, ControlTable

_log = logging.getLogger("tf1ps")
EPOCH = 2 ** 32  # the distance between the leases of two epochs


class StaleSessionError(Error, RuntimeError):
  """The table belongs to a later initialisation of the variables than the session."""


class DifferentDataError(Error, RuntimeError):
  """Two workers do not see the same data."""


def range_of(lease: int, count: int, seed: Optional[int]) -> int:
  """Returns the range of a lease, as epoch * 2^32 + the range's index, with `count` ranges.

  `seed` shuffles the ranges of each epoch in the same way on all workers; None: index order.
  """
  if seed is None:
    return lease
  epoch, place = divmod(lease, EPOCH)
  order = np.random.RandomState(zlib.crc32(b"%d %d" % (seed, epoch))).permutation(count)
  return epoch * EPOCH + int(order[place])


class LeaseState:
  """The leases of all workers.

  Attributes:
    value: the state, which can be written as JSON. digest: of the data; epochs; count: of ranges;
      next: the first lease that was never granted; out: {lease: [worker, examples of it that the
      worker trained on]}; back: returned leases; again: examples of returned leases that were
      trained on.
  """

  def __init__(self, value: dict):
    """Wraps a state; the methods change `value` in place."""
    self.value = value

  @classmethod
  def new(cls, digest: str, count: int, epochs: Optional[int]) -> "LeaseState":
    """Returns the state before the first lease of `count` ranges; `epochs` None: without end.

    `digest` is a text that differs for different data.
    """
    return cls(dict(digest=digest, count=count, epochs=epochs, next=0, out={}, back=[], again=0))

  @classmethod
  def check(cls, text: str) -> str:
    """Returns a text of `LeaseTable.to_json`; else raises ValueError, KeyError or TypeError."""
    value = json.loads(text)
    for name, kind in (("digest", str), ("count", int), ("next", int), ("again", int),
                       ("back", list), ("out", dict)):
      if not isinstance(value[name], kind):
        raise ValueError("%s must be %s, got %r" % (name, kind.__name__, value[name]))
    numbers = [part for lease, (owner, examples) in value["out"].items()
               for part in (int(lease), owner, examples)]
    if not all(isinstance(number, int) for number in numbers + value["back"]):
      raise ValueError("out and back must have whole numbers, got %r" % (value,))
    return text

  def grant(self, owner: int, epoch: Optional[int] = None,
            held: Iterable[int] = ()) -> Optional[int]:
    """Grants worker `owner` a lease of `epoch` (None: any); returns it, or None if none is left.

    A worker that was wrongly considered lost may still read the ranges `held`, and gets none of
    these.
    """
    value, held = self.value, set(held)
    lease = next((back for back in value["back"]
                  if epoch in (None, back // EPOCH) and back not in held), None)
    if lease is not None:
      value["back"].remove(lease)
    elif self._has_new() and epoch in (None, self._next() // EPOCH):
      lease = self._next()
      value["next"] = lease + 1
    else:
      return None
    value["out"][str(lease)] = [owner, 0]
    return lease

  def done(self, owner: int, leases: Iterable[int]) -> None:
    """Ends leases whose ranges are done; ignores leases that the worker no longer holds."""
    for lease in leases:
      if self.value["out"].get(str(lease), [None])[0] == owner:
        del self.value["out"][str(lease)]

  def note_trained(self, owner: int, examples: Dict[int, int]) -> None:
    """Notes how many examples of its leases a worker has trained on so far, by lease."""
    for lease, trained in examples.items():
      held = self.value["out"].get(str(lease))
      if held is not None and held[0] == owner:
        held[1] = trained

  def return_leases(self, owner: int, held: Iterable[int] = ()) -> List[int]:
    """Takes back the leases of worker `owner` except `held`; returns the leases taken back."""
    value, held = self.value, set(held)
    back = [int(c) for c, (o, _) in value["out"].items() if o == owner and int(c) not in held]
    for lease in back:
      value["again"] += value["out"].pop(str(lease))[1]
    value["back"] = sorted(value["back"] + back)
    return back

  @property
  def owners(self) -> Set[int]:
    """The workers that hold leases."""
    return {owner for owner, _ in self.value["out"].values()}

  @property
  def has_more(self) -> bool:
    """Whether there is a lease to grant."""
    return bool(self.value["back"]) or self._has_new()

  @property
  def is_done(self) -> bool:
    """Whether all ranges of all epochs are done."""
    return not self.has_more and not self.value["out"]

  @property
  def repeated_examples(self) -> int:
    """Examples of returned leases that were trained on, as far as the workers reported them."""
    return self.value["again"]

  def _next(self) -> int:
    """The next new lease; it is of the next epoch if all leases of this epoch are granted."""
    value = self.value
    epoch, place = divmod(value["next"], EPOCH)
    return (epoch + 1) * EPOCH if place >= value["count"] else value["next"]

  def _has_new(self) -> bool:
    epochs = self.value["epochs"]
    return self.value["count"] > 0 and (epochs is None or self._next() // EPOCH < epochs)


class LeaseTable:
  """One task's access to the table.

  Attributes:
    records: the number of records in the data, or None if they were not counted.
  """

  def __init__(self, table: ControlTable, container: Optional[str], digest: str,
               epochs: Optional[int]):
    """Prepares the access; makes no call yet.

    `table` belongs to the task that keeps the job's control records. `digest` is the digest of this
    worker's ranges. `epochs` is the number of times that each range is handed out; None: no end.
    """
    self._table = table
    self._name = "ranges:%s" % container
    self._digest, self._epochs = digest, epochs
    self._era: Optional[int] = None
    self._last: Optional[str] = None
    self.records: Optional[int] = None

  def begin(self, count: int, records: Optional[int] = None, saved: Optional[str] = None) -> None:
    """Begins an era of `count` ranges, on the chief; raises ControlError.

    Args:
      count: the number of ranges.
      records: the number of records, if they were counted.
      saved: the result of `to_json` from the checkpoint that training continues from, or None.
    """
    state = self._state_of(saved, count)
    self._era, self.records = random.getrandbits(48), records
    value = dict(era=self._era, records=records, ranges=state.value)
    self._table.change(self._name, lambda unused_value: value)

  def attach(self) -> None:
    """Joins the present era.

    Raises:
      ControlError: the server does not answer, or has no table.
      DifferentDataError: the chief has other ranges than this worker.
    """
    value = self._table.change(self._name, lambda unused_value: None)
    if not value:  # the ps was started again
      raise ControlError("the chief has not written the table of ranges of the data yet")
    digest = value["ranges"]["digest"]
    if digest != self._digest:
      raise DifferentDataError(
        "the chief hands out other ranges of the data (%s) than this worker has (%s). Give all "
        "workers the same files under the same names, or the same records." % (
          digest, self._digest))
    self._era, self.records = value["era"], value["records"]

  def change(self, function: Callable[[LeaseState], object]):
    """Changes the table atomically; returns the result of `function`.

    `function` takes the `LeaseState`, and may be called more than once. Raises ControlError, or
    StaleSessionError if another era has begun.
    """
    answers = []

    def apply(value):
      if value is None or value["era"] != self._era:
        raise StaleSessionError(
          "the job's state was initialised again after this session began, so the session's ranges "
          "of the data are no longer valid")
      state = LeaseState(copy.deepcopy(value["ranges"]))
      answers.append(function(state))
      self._last = json.dumps(value["ranges"], sort_keys=True)
      return None if state.value == value["ranges"] else dict(value, ranges=state.value)

    self._table.change(self._name, apply)
    return answers[-1]

  def to_json(self) -> str:
    """Returns the state, or the last state that was read if the server does not answer.

    Raises tf.errors.AbortedError if no state was read before.
    """
    try:
      self.change(lambda state: None)
    except (ControlError, StaleSessionError) as error:
      if self._last is None:
        raise tf.errors.AbortedError(None, None, str(error)) from error
    return self._last

  def close(self) -> None:
    """Closes the session, within a limit."""
    self._table.close()

  def _state_of(self, saved, count) -> LeaseState:
    new = LeaseState.new(self._digest, count, self._epochs)
    if saved is None:
      return new
    state = LeaseState(dict(json.loads(saved), epochs=self._epochs))
    if (state.value["digest"], state.value["count"]) != (self._digest, count):
      _log.warning("the data has changed since the checkpoint was saved (its files, or without "
                   "files the number of records or --batch_size). The epochs start from the "
                   "beginning.")
      return new
    for owner in state.owners:
      state.return_leases(owner)
    return state
