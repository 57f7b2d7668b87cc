"""The table of ranges, kept as a control record for all workers of a job.

1. The chief writes it when the job's state begins: new, or as it was when the checkpoint was saved
   (`begin`). Each beginning is an era.
2. A session takes part in the era that it found (`attach`). Whoever belongs to an earlier one,
   whose updates may be gone, can change nothing any more.
3. The chief keeps a copy with each checkpoint (`to_json`), made before the variables are saved: no
   range is done there whose updates are not in them.
"""

from __future__ import annotations

import copy
import json
import logging
import random
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.pipeline import ranges as ranges_lib
from tf1ps.pipeline.claims import StaleSessionError
from tf1ps.state import ControlError, ControlTable

_log = logging.getLogger("tf1ps")


class DifferentDataError(Error, RuntimeError):
  """The workers do not see the same data."""


class RangeTable:
  """One task's access to the table.

  Attributes:
    records: how many records the data have, where they were counted; else None.
  """

  def __init__(self, table: ControlTable, container: str, digest: str,
               epochs: Optional[int]):
    """Prepares access; no call is made yet.

    Args:
      table: the control records of the task that keeps those of the job.
      container: the job's.
      digest: of what this worker's ranges are.
      epochs: how often all are handed out; None: without end.
    """
    self._table = table
    self._name = "ranges:%s" % container
    self._digest = digest
    self._epochs = epochs
    self._era: Optional[int] = None
    self._last: Optional[str] = None
    self.records: Optional[int] = None

  def begin(self, count: int, records: Optional[int] = None, saved: Optional[str] = None) -> None:
    """Begins an era; the chief's.

    Args:
      count: of the ranges.
      records: of the data, where they were counted.
      saved: what `to_json` returned when the state was saved that training goes on with, or None.

    Raises:
      control.ControlError: no answer.
    """
    ranges = self._ranges_of(saved, count)
    self._era, self.records = random.getrandbits(48), records
    value = dict(era=self._era, records=records, ranges=ranges.value)
    self._table.change(self._name, lambda unused_value: value)

  def attach(self) -> None:
    """Takes part in the present era.

    Raises:
      control.ControlError: no answer, or no table.
      DifferentDataError: the chief's ranges are others than this worker's.
    """
    value = self._table.change(self._name, lambda unused_value: None)
    if not value:  # a ps that was started again
      raise ControlError("the chief has not written down the ranges of the data")
    found = value["ranges"]["digest"]
    if found != self._digest:
      raise DifferentDataError(
        "the chief hands out other ranges of the data (%s) than this worker has (%s): all workers "
        "must see the same files under the same names, or the same records" % (
          found, self._digest))
    self._era, self.records = value["era"], value["records"]

  def change(self, function: Callable[[ranges_lib.Ranges], object]):
    """Changes the table, indivisibly.

    Args:
      function: called with the `ranges.Ranges`, perhaps more than once.

    Returns:
      What the function returned.

    Raises:
      control.ControlError: no answer.
      StaleSessionError: another era has begun.
    """
    answers = []

    def apply(value):
      if value is None or value["era"] != self._era:
        raise StaleSessionError("the ranges of the data are handed out anew")
      ranges = ranges_lib.Ranges(copy.deepcopy(value["ranges"]))
      answers.append(function(ranges))
      self._last = json.dumps(value["ranges"], sort_keys=True)
      return None if ranges.value == value["ranges"] else dict(value, ranges=ranges.value)

    self._table.change(self._name, apply)
    return answers[-1]

  def to_json(self) -> str:
    """The ranges as they are now, or as they were when they were last seen.

    Raises:
      tf.errors.AbortedError: they were not seen, and there is no answer.
    """
    try:
      self.change(lambda ranges: None)
    except (ControlError, StaleSessionError) as error:
      if self._last is None:
        raise tf.errors.AbortedError(None, None, str(error)) from error
    return self._last

  def close(self) -> None:
    """Closes the session, within a limit."""
    self._table.close()

  def _ranges_of(self, saved, count) -> ranges_lib.Ranges:
    new = ranges_lib.Ranges.new(self._digest, count, self._epochs)
    if saved is None:
      return new
    ranges = ranges_lib.Ranges(dict(json.loads(saved), epochs=self._epochs))
    if (ranges.value["digest"], ranges.value["count"]) != (self._digest, count):
      _log.warning("the files, or where there are none the records or --batch_size, have changed "
                   "since the checkpoint was saved: the epochs begin anew")
      return new
    for owner in ranges.owners:
      ranges.give_back(owner)
    return ranges
