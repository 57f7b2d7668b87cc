"""What the errors of a synchronous training step mean, and which of them a new session cures.

  the update was cut off in the middle    the chief restores the last checkpoint
  this replica takes no part              the chief has begun a new book; the hook joins again

One that none cures: replicas that were told different rules.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.replication import NOT_JOINED, TORN
from tf1ps.state import GUARD_MISMATCH


class RulesError(Error, RuntimeError):
  """The replicas of a job were told different rules for synchronous updates."""


def explain(error: BaseException) -> BaseException:
  """Says what an error of a run means.

  Args:
    error: what the run raised.

  Returns:
    An AbortedError, from which a MonitoredSession recovers by a new session; a RulesError; or the
    error itself.
  """
  if isinstance(error, tf.errors.InvalidArgumentError):
    for meaning in (TORN, NOT_JOINED):
      _, found, text = error.message.partition(meaning)
      if found:
        return tf.errors.AbortedError(None, None, text.splitlines()[0])
    there = error.message.replace('\\"', '"').partition(GUARD_MISMATCH)[2]  # Assert escapes quotes
    if '"on_uneven"' in there:
      return RulesError(
        "this replica was told other rules for synchronous updates than those before it in this "
        "container: give all of them the same number of workers, --replicas_to_aggregate and "
        "--on_uneven, or another --container; there: %s" % (
          there.splitlines()[0].strip("] [")))
  return error
