"""Bad records: what happens to a record that cannot be decoded.

Each graph has one `BadRecords`, which whoever decodes records in it asks. In the order of what
happens to a bad one:

1. It was found alone: whoever decodes in batches has the others of its batch out of the way.
2. Under "fail", the default, the consumer's error is the decoder's, with the record's file and line
   before it (`located`), after all good records before it.
3. Under "skip" it is counted, the first ten are logged, and the job stops once the part of bad
   records is above a ratio. Fewer than 100 records are too few to tell before the data's end.
"""

from __future__ import annotations

import logging
import threading
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.pipeline.choices import DEFAULT_MAX_BAD_RATIO, FAIL_ON_BAD_RECORD, SKIP_BAD_RECORD
from tf1ps.pipeline.choices import ON_BAD_RECORD as POLICIES

_log = logging.getLogger("tf1ps")

_LOGGED = 10  # of the records that are skipped
_ENOUGH = 100  # records, to tell their ratio before the end of the data
_ATTRIBUTE = "_tf1ps_bad_records"


class TooManyBadRecordsError(Error, RuntimeError):
  """More than the tolerated part of the records is bad."""


class BadRecords:
  """The policy for bad records in one graph, and what was skipped so far; for any thread.

  Attributes:
    policy: "fail" or "skip".
    max_ratio: the part of the records that may be skipped, 0 to 1.
    skipped: how many were skipped so far.
  """

  def __init__(self, policy: str = FAIL_ON_BAD_RECORD, max_ratio: float = DEFAULT_MAX_BAD_RATIO):
    """Creates the policy; the arguments are the attributes of that name.

    Raises:
      ValueError: no such policy, or no ratio.
    """
    if policy not in POLICIES:
      raise ValueError("on_bad_record must be one of %s, got %r" % (", ".join(POLICIES), policy))
    if not 0.0 <= max_ratio <= 1.0:
      raise ValueError("max_bad_ratio must be a part of 1, 0.0 to 1.0, got %r" % (max_ratio,))
    self.policy = policy
    self.max_ratio = max_ratio
    self.skipped = 0
    self._lock = threading.Lock()

  @property
  def skips(self) -> bool:
    return self.policy == SKIP_BAD_RECORD

  def anew(self) -> "BadRecords":
    """The same policy for another graph, of which nothing was skipped yet."""
    return BadRecords(self.policy, self.max_ratio)

  def skip(self, key: str, reason: str, read: int) -> None:
    """Counts a bad record.

    Args:
      key: where it stands, such as "data/a.csv:17".
      reason: what is wrong with it, such as "Field 3 in record 0 is not a valid float: x".
      read: how many records were read so far, good and bad, this one among them.

    Raises:
      TooManyBadRecordsError: with this one there are too many.
    """
    with self._lock:
      self.skipped += 1
      skipped = self.skipped
    if skipped <= _LOGGED:
      _log.warning("skipped the bad record %s: %s%s", key, reason,
                   "; further ones are only counted" if skipped == _LOGGED else "")
    self._check(skipped, max(read, _ENOUGH), key)

  def check_at_end(self, read: int) -> None:
    """Raises TooManyBadRecordsError, if of all records that were read too many were skipped."""
    if self.skipped:
      self._check(self.skipped, read, None)

  def _check(self, skipped: int, read: int, key: Optional[str]):
    if skipped > self.max_ratio * read:
      last = "" if key is None else "; the last one is %s" % key
      raise TooManyBadRecordsError(
        "%d of %d records are bad, more than the tolerated part of %g (--max_bad_ratio)%s" % (
          skipped, max(read, skipped), self.max_ratio, last))


def bad_records_of_graph(graph: Optional[tf.Graph] = None) -> BadRecords:
  """The policy of a graph, by default of the default graph: "fail", unless `use` was called."""
  graph = graph or tf.get_default_graph()
  found = getattr(graph, _ATTRIBUTE, None)
  if found is None:
    found = BadRecords()
    setattr(graph, _ATTRIBUTE, found)
  return found


def use_bad_records(policy: BadRecords, graph: Optional[tf.Graph] = None) -> None:
  """Makes a policy that of a graph, by default of the default graph, before records are decoded."""
  setattr(graph or tf.get_default_graph(), _ATTRIBUTE, policy)


def located(error: tf.errors.OpError, key: str) -> tf.errors.OpError:
  """The same error, saying first where the record stands.

  Args:
    error: the decoder's.
    key: such as "data/a.csv:17".
  """
  return type(error)(error.node_def, error.op, "%s: %s" % (key, error.message))
