"""What one failed run had read, tried again in parts.

The records of the run are halved until each bad one stands alone, in their order, and the good ones
are enqueued on the way: of n records with one bad one that takes 2 log2(n) runs.
"""

from __future__ import annotations

from typing import Iterable, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import error_line, retry_refused_run
from tf1ps.pipeline import bad_records, record_copies
from tf1ps.pipeline.graph_input import input_of

# A decoder says that it cannot decode; another error is nothing to skip.
_BAD = (tf.errors.InvalidArgumentError, tf.errors.DataLossError)
# The queue was closed, or a task of the cluster has gone.
_NOT_OF_RECORDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError, tf.errors.AbortedError,
                   tf.errors.UnavailableError)


def retry(kind, session, copy: record_copies.Copy, error: tf.errors.OpError) -> None:
  """Enqueues the good records of a run that failed, and skips the bad ones or raises.

  Args:
    kind: the class whose `run` to use.
    session: the session.
    copy: what was run.
    error: the run's, for which `copy.is_in` or `copy.may_be_in` holds.

  Raises:
    tf.errors.OpError: the first bad record's, with its place; those before it are enqueued.
    bad_records.TooManyBadRecordsError: too many were skipped.
  """
  try:
    keys, values = kind.run(session, [copy.last_keys, copy.last_values])
  except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
    raise error from None  # nothing was read yet
  feeds = {copy.keys: keys, copy.values: values}
  if not copy.is_in(error):
    # What was read last was enqueued before, unless it cannot be decoded.
    try:
      kind.run(session, list(copy.enqueue.inputs)[1:], feeds)
    except tf.errors.OpError:
      pass
    else:
      raise error
  _Retry(kind, session, copy).failed(keys, values, error)


def records_read(session, copies: Iterable[Optional[record_copies.Copy]], kind=tf.Session) -> int:
  """How many records the readers above these copies have read, in this session."""
  counts = {tensor.op.inputs[0].name: tensor
            for copy in copies if copy is not None for tensor in copy.counts}
  return int(sum(kind.run(session, list(counts.values()))))


class _Retry:
  """The parts of one failed run."""

  def __init__(self, kind, session, copy):
    self._kind = kind
    self._session = session
    self._copy = copy
    self._policy = input_of(copy.enqueue.graph).bad_records

  def failed(self, keys: np.ndarray, values: np.ndarray, error: tf.errors.OpError):
    """What to do about records of which one at least is bad."""
    if np.size(keys) > 1 and self._have_fixed_shape(len(keys)):
      raise self._located(error, "one of %s to %s" % (_text(keys), _text(keys[-1])))
    if np.size(keys) > 1:
      middle = len(keys) // 2
      for begin, end in ((0, middle), (middle, len(keys))):
        self._enqueue(keys[begin:end], values[begin:end])
      return
    if not (self._policy.skips and isinstance(error, _BAD)):
      raise self._located(error, _text(keys))
    self._policy.skip(_text(keys), self._reason(error),
                      records_read(self._session, [self._copy], self._kind))

  def _have_fixed_shape(self, count):
    """Whether the graph says that there are always as many: then parts cannot be fed."""
    return any(not tensor.shape.is_compatible_with([count - 1])
               for tensor in (self._copy.keys, self._copy.values))

  def _reason(self, error):
    return error_line(error).replace(self._copy.prefix, "")

  def _located(self, error, place):
    return bad_records.located(self._copy.of_original(error, self._reason(error)), place)

  def _enqueue(self, keys, values):
    try:
      retry_refused_run(self._kind.run, self._session, self._copy.enqueue,
                       {self._copy.keys: keys, self._copy.values: values})
    except _NOT_OF_RECORDS:
      raise
    except tf.errors.OpError as error:  # nothing but the copy has run
      self.failed(keys, values, error)


def _text(keys) -> str:
  """The key of a single record, scalar or [1]."""
  key = np.asarray(keys).reshape([-1])[0]
  return key.decode("utf-8", "replace")
