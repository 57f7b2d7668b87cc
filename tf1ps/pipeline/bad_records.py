"""The policy for bad records: records that cannot be decoded.

Each graph has one `BadRecords` (graph_input.py), which all decoders of the graph use:

1. A decoder of batches separates a bad record from the other records of its batch.
2. Under "fail", the default, the good records before a bad record reach the consumer. Then the
   consumer's run fails with the decoder's error, which begins with the record's file and line
   (`located`).
3. Under "skip" the bad record is counted and left out. The first ten bad records are logged.
   Training stops when the ratio of bad records is above `max_ratio`. Before the end of the data,
   the ratio is computed as if at least 100 records had been read.
"""

from __future__ import annotations

import logging
import threading
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.pipeline.input_options import DEFAULT_MAX_BAD_RATIO, FAIL_ON_BAD_RECORD, SKIP_BAD_RECORD
from tf1ps.pipeline.input_options import ON_BAD_RECORD as POLICIES

_log = logging.getLogger("tf1ps")

_LOGGED = 10  # skipped records that are logged
_ENOUGH = 100  # the least number of records for the ratio, before the end of the data


class TooManyBadRecordsError(Error, RuntimeError):
  """More records are bad than `max_ratio` tolerates."""


class BadRecords:
  """The policy for bad records in a graph, and the count of skipped records; thread-safe.

  Attributes:
    policy: "fail" or "skip".
    max_ratio: the ratio of the records that may be skipped, 0 to 1.
    skipped: how many records were skipped so far.
    skips: whether the policy is "skip".
  """

  def __init__(self, policy: str = FAIL_ON_BAD_RECORD, max_ratio: float = DEFAULT_MAX_BAD_RATIO):
    """Creates the policy; ValueError if it is unknown, or the ratio is outside of 0 to 1."""
    if policy not in POLICIES:
      raise ValueError("on_bad_record must be one of %s, got %r" % (", ".join(POLICIES), policy))
    if not 0.0 <= max_ratio <= 1.0:
      raise ValueError("max_bad_ratio must be a ratio, 0.0 to 1.0, got %r" % (max_ratio,))
    self.policy, self.max_ratio = policy, max_ratio
    self.skipped = 0
    self.skips = policy == SKIP_BAD_RECORD
    self._lock = threading.Lock()

  def clone(self) -> "BadRecords":
    """Returns the same policy for another graph, with no skipped record yet."""
    return BadRecords(self.policy, self.max_ratio)

  def skip(self, key: str, reason: str, read: int) -> None:
    """Counts a bad record; raises TooManyBadRecordsError if there are too many now.

    Args:
      key: the record's position, such as "data/a.csv:17".
      reason: the decoder's error, such as "Field 3 in record 0 is not a valid float: x".
      read: the number of records that were read so far, good and bad, including this record.
    """
    with self._lock:
      self.skipped += 1
      skipped = self.skipped
    if skipped <= _LOGGED:
      _log.warning("skipped the bad record %s: %s%s", key, reason,
                   "; further bad records are only counted" if skipped == _LOGGED else "")
    self._check(skipped, max(read, _ENOUGH), key)

  def check_at_end(self, read: int) -> None:
    """Raises TooManyBadRecordsError if too many of all records that were read were skipped."""
    if self.skipped:
      self._check(self.skipped, read, None)

  def _check(self, skipped: int, read: int, key: Optional[str]):
    if skipped > self.max_ratio * read:
      last = "" if key is None else "; the last is %s" % key
      raise TooManyBadRecordsError(
        "%d of %d records are bad, more than the tolerated ratio of %g "
        "(--on_bad_record=skip:R)%s" % (
          skipped, max(read, skipped), self.max_ratio, last))


def located(error: tf.errors.OpError, key: str) -> tf.errors.OpError:
  """Returns the same error with the record's position, such as "data/a.csv:17", before its text."""
  return type(error)(error.node_def, error.op, "%s: %s" % (key, error.message))
