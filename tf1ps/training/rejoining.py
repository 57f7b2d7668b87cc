"""Which errors of a synchronous training step a new session cures.

  the update was cut off in the middle    the chief restores the last checkpoint
  this replica takes no part              the chief has begun a new book; the hook joins again
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.replication import turns


def explain(error: BaseException) -> BaseException:
  """The AbortedError, which a MonitoredSession recovers from, that an error of a run means."""
  if isinstance(error, tf.errors.InvalidArgumentError):
    for meaning in (turns.TORN, turns.NOT_JOINED):
      _, found, text = error.message.partition(meaning)
      if found:
        return tf.errors.AbortedError(None, None, text.splitlines()[0])
  return error
